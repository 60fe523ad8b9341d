package sql_test

import (
	"fmt"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

func Example() {
	q, err := sql.Parse("SELECT VALUE o.total FROM orders o WHERE o.customer = @who AND o.total > 10")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := q.Bind([]sql.Parameter{{Name: "@who", Value: []byte(`"Ann"`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	customers, _ := b.Keys([][]string{{"customer"}}, 100)
	fmt.Printf("only documents of %s\n", customers)
	for _, doc := range []string{
		`{"id":"1", "customer":"Ann", "total":12.50}`,
		`{"id":"2", "customer":"Bob", "total":99}`,
		`{"id":"3", "customer":"Ann", "total":"much"}`,
	} {
		err := b.Rows([]byte(doc), func(row []byte) error {
			fmt.Println(string(row))
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	_, err = sql.Parse("SELECT * FORM orders")
	fmt.Println(err)
	// Output:
	// only documents of [["Ann"]]
	// 12.5
	// Syntax error, incorrect syntax near 'FORM'.
}
