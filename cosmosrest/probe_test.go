package cosmosrest

import (
	"fmt"
	"testing"
)

func TestProbe(t *testing.T) {
	w, _ := newContainer(t, Options{}); w.item(t, "a", `,"n":1,"x":[3,1,2]`)
	for _, q := range []string{
		"SELECT 1/0 AS x, 1 AS y", "SELECT VALUE 1%0", "SELECT VALUE -(1/0)", "SELECT VALUE LOG(0)",
		"SELECT c.n FROM c ORDER BY c.n+1", "SELECT c.n FROM c ORDER BY LOWER(c.n)", "SELECT c.n FROM c ORDER BY c.n, c.m",
		"SELECT c.n FROM c JOIN t IN c.x ORDER BY t.y", "SELECT c.n FROM c ORDER BY 1", "SELECT c.n FROM c ORDER BY @x","SELECT c.n FROM c ORDER BY c",
		"SELECT COUNT(1) FROM c ORDER BY c.n", "SELECT VALUE COUNT(1) FROM c ORDER BY c.n", "SELECT c.n FROM c GROUP BY c.n ORDER BY c.n",
		"SELECT VALUE ARRAY(SELECT TOP 1 t FROM t IN c.x) FROM c", "SELECT VALUE ARRAY(SELECT t FROM t IN c.x ORDER BY t) FROM c", "SELECT * FROM (SELECT TOP 1 c.n FROM c) d",
		"SELECT VALUE ARRAY(SELECT t FROM t IN c.x OFFSET 1 LIMIT 1) FROM c",
		"SELECT VALUE [1,2,3][c.x] FROM c", "SELECT VALUE {'a':1}[c.x] FROM c", "SELECT VALUE c.y[c.x] FROM c", "SELECT VALUE [1,2,3][1] FROM c", "SELECT VALUE [1,2,3][@x] FROM c",
		"SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.x FROM c)", "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.x FROM c) AS d", "SELECT DISTINCT c.n FROM c ORDER BY c.n",
		"SELECT TOP 1.5 * FROM c", "SELECT TOP @p * FROM c", "SELECT TOP 4294967296 * FROM c", "SELECT * FROM c OFFSET 1.5 LIMIT 2", "SELECT * FROM c OFFSET 4294967296 LIMIT 2", "SELECT * FROM c OFFSET 1 LIMIT 4294967296",
		"SELECT * FROM c OFFSET 1", "SELECT TOP 2 * FROM c OFFSET 1 LIMIT 1", "SELECT c.a, c.a FROM c", "SELECT {'a':1,'a':2} FROM c", "SELECT * FROM c JOIN d IN c.x", "SELECT *", "SELECT d.x FROM c",
		"SELECT s.a FROM c JOIN s IN c.x GROUP BY c.x", "SELECT s.a, s.bb FROM c JOIN s IN c.x GROUP BY c.x", "SELECT * FROM c WHERE c.x = 'abc", "SELECT * FROM c WHERE c.x = 'a\\qc'", "SELECT udf.f(c.x) FROM c", "SELECT SUM(c.x, 1) FROM c", "SELECT LOWER() FROM c","SELECT SUM(COUNT(1)) FROM c", "SELECT c.x FROM c WHERE COUNT(1) > 1", "SELECT c.x FROM c WHERE EXISTS(c.x)", "SELECT VALUE c.x FROM c WHERE c.x LIKE 5", "SELECT * FROM c c, c d", "SELECT c FROM c JOIN c IN c.x", "SELECT c.x y z FROM c", "SELECT c.order FROM c","SELECT * FROM c WHERE c.x IN ()", "SELECT VALUE a.b, c FROM c", "SELECT 5 FROM 5", "DELETE FROM c", "",
	} {
		a := w.do(t, "POST", docs, across("x-ms-documentdb-partitionkey", `["p"]`, "content-type", "application/query+json", "x-ms-documentdb-isquery", "true"), fmt.Sprintf(`{"query":%q}`, q))
		fmt.Printf("%-60s %d %s %.420s\n", q, a.status, a.header.Get("x-ms-substatus"), a.body)
	}
}
