package sql

import (
	"fmt"
	"testing"
)

func TestPins(t *testing.T) {
	pk := []string{"pk"}
	tests := []struct {
		where string
		path  []string
		want  string
	}{
		{"c.pk = 'x'", pk, `["x"] true`},
		{"'x' = c.pk", pk, `["x"] true`},
		{"c.pk = @p", pk, `[7] true`},
		{"c.pk = -1.50", pk, `[-1.5] true`},
		{"c.pk = 'x' AND c.a > 1", pk, `["x"] true`},
		{"(c.pk = 'x' AND (c.a = 1)) AND c.id = 'y'", pk, `["x"] true`},
		{`c["a"]["b"] = @p`, []string{"a", "b"}, `[7] true`},
		{"c.a[0] = 1", []string{"a", "0"}, `[] false`},
		{"IS_NULL(c.pk)", pk, `[null] true`},
		{"c.pk IN ('a', @p, 'a')", pk, `["a" 7] true`},
		{"c.pk NOT IN ('a')", pk, `[] false`},
		{"NOT c.pk = 'a'", pk, `[] false`},
		{"c.pk = 'a' OR c.x = 1", pk, `[] false`},
		{"(c.id = '1' AND c.pk = 'a') OR (c.id = '2' AND IS_NULL(c.pk)) OR (c.pk = 'a')", pk, `["a" null] true`},
		{"c.pk IN ('a', 'b') AND c.pk = 'b'", pk, `["b"] true`},
		{"c.pk = [1]", pk, `[[1]] true`},
		{"c.pk IN ({}, {'x': @p}, 1)", pk, `[{} {"x":7} 1] true`},
		{"c.pk IN ('a', 'b') AND c.pk IN ('b', 'c')", pk, `["b"] true`},
		{"c.pk = 1 AND c.pk = 2", pk, `[] true`},
		{"NOT c.pk", pk, `[false] true`},
		{"c.pk", pk, `[true] true`},
		{"NOT c.pk.x", pk, `[] false`},
		{"IS_BOOL(c.pk)", pk, `[false true] true`},
		{"ABS(c.pk) = 3", pk, `[3 -3] true`},
		{"0 = ABS(c.pk)", pk, `[0] true`},
		{"ABS(c.pk) = -3", pk, `[] true`},
		{"ABS(c.pk) = c.x", pk, `[] false`},
		{"c.pk LIKE 'a!%' ESCAPE '!'", pk, `["a%"] true`},
		{"c.pk LIKE 'a%'", pk, `[] false`},
		{"c.pk LIKE 'a_'", pk, `[] false`},
		{"c.pk NOT LIKE 'a'", pk, `[] false`},
		{"false", pk, `[] true`},
		{"c.x > 1 AND 1 = 2", pk, `[] true`},
		{"c.x > 1 OR 1 = 2", pk, `[] false`},
		{"c.pk = 'a' OR LENGTH(@p) = 1", pk, `["a"] true`},
		{"RAND() > 2", pk, `[] false`},
		{"1 = 1", pk, `[] false`},
		{"c.x = (SELECT VALUE d.y FROM c d WHERE d.pk = 'a')", pk, `["a"] true`},
		{"EXISTS(SELECT VALUE t FROM t IN c.tags WHERE c.pk = 'a')", pk, `["a"] true`},
		{"NOT EXISTS(SELECT VALUE t FROM t IN c.tags WHERE c.pk = 'a')", pk, `[] false`},
		{"c.x = (SELECT VALUE COUNT(1) FROM c d WHERE d.pk = 'a')", pk, `[] false`},
		{"EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.pk = 'a')", pk, `[] false`},
		{"c.pk = c.x", pk, `[] false`},
		{"c.pk IN ('a', undefined)", pk, `["a"] true`},
		{"c.pk IN ('a', c.x)", pk, `[] false`},
		{"c.pk >= 'a'", pk, `[] false`},
		{"c.pk != 'a'", pk, `[] false`},
		{"ARRAY_CONTAINS(['a', 1], c.pk)", pk, `["a" 1] true`},
		{"ARRAY_CONTAINS(@list, c.pk, false)", pk, `["x" null] true`},
		{"ARRAY_CONTAINS([['a']], c.pk)", pk, `[["a"]] true`},
		{"ARRAY_CONTAINS([{'a': 1}], c.pk, true)", pk, `[] false`},
		{"ARRAY_CONTAINS([1, 2], c.pk, true)", pk, `[1 2] true`},
		{"ARRAY_CONTAINS(c.pk, 'a')", pk, `[] false`},
		{"ARRAY_CONTAINS(c.list, c.pk)", pk, `[] false`},
	}
	for _, test := range tests {
		b := bound(t, "SELECT * FROM c WHERE "+test.where, Parameter{"@p", []byte("7")},
			Parameter{"@list", []byte(`["x", null]`)})
		values, ok := PinsOf(b, test.path)
		var texts []string
		for _, v := range values {
			texts = append(texts, string(v))
		}
		if got := fmt.Sprint(texts, ok); got != test.want {
			t.Errorf("%s: pins %s, want %s", test.where, got, test.want)
		}
	}
}

func bound(t testing.TB, query string, params ...Parameter) *Bound {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	b, err := q.Bind(params)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return b
}

func TestIDs(t *testing.T) {
	tests := []struct{ query, ids, prefix string }{
		{"SELECT * FROM c", "[] false", " false"},
		{"SELECT * FROM c WHERE c.id = 'a'", "[a] true", " false"},
		{"SELECT * FROM c WHERE c.id IN ('a', 5, 'b')", "[a b] true", " false"},
		{"SELECT c.id FROM x c JOIN t IN c.tags WHERE c.id = 'a'", "[a] true", " false"},
		{"SELECT * FROM c IN x.children WHERE c.id = 'a'", "[] false", " false"},
		{"SELECT * FROM c WHERE STARTSWITH(c.id, 'p..')", "[] false", "p.. true"},
		{"SELECT * FROM c WHERE c.x = 1 AND STARTSWITH(c.id, 'p..', false)", "[] false", "p.. true"},
		{"SELECT * FROM c WHERE c.x = 1 AND (c.y = 1 AND STARTSWITH(c.id, 'p..'))", "[] false", "p.. true"},
		{"SELECT * FROM c WHERE STARTSWITH(c.id, 'p..', true)", "[] false", " false"},
		{"SELECT * FROM c WHERE c.x = 1 OR STARTSWITH(c.id, 'p..')", "[] false", " false"},
		{"SELECT * FROM c WHERE STARTSWITH(c.x, 'p..')", "[] false", " false"},
	}
	for _, test := range tests {
		b := bound(t, test.query)
		ids, ok := b.IDs()
		prefix, okPrefix := b.IDPrefix()
		if got := fmt.Sprint(ids, ok); got != test.ids {
			t.Errorf("%s: ids %s, want %s", test.query, got, test.ids)
		}
		if got := fmt.Sprintf("%s %v", prefix, okPrefix); got != test.prefix {
			t.Errorf("%s: prefix %s, want %s", test.query, got, test.prefix)
		}
	}
}
