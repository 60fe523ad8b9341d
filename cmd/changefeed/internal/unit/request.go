package unit

import (
	"cmp"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// longestKey is the width of a request in a table.
const longestKey = 41

// cells returns the columns of a request: action and key, age, and state. The ID would fill the line.
func (q *Request) cells(r Row) []string {
	name := terminal.Shorten(terminal.OneLine(q.Action+" "+cmp.Or(q.Range, string(q.Key))), longestKey)
	return []string{
		name, "-", terminal.Seconds(max(0, q.age.Seconds())) + " ago", "-", "-", "-", r.State, "-",
		strings.Join(r.Notes, "; "),
	}
}
