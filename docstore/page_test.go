package docstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

func TestPagesEndBeforeFourMegabytes(t *testing.T) {
	c := container(t, open(t, docstore.Options{}), docstore.ContainerSpec{})
	commit := func(kilobytes ...int) {
		t.Helper()
		var writes []changefeed.Write
		for i, n := range kilobytes {
			body := fmt.Appendf(nil, `{"id":"%d-%d","pk":"p","text":%q}`, c.Head(), i, strings.Repeat("x", n<<10))
			writes = append(writes, changefeed.Write{Op: changefeed.WriteCreate, Body: body})
		}
		if _, err := c.Commit(t.Context(), changefeed.Key("p"), writes); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		commit(1500)
	}
	commit(500, 500, 900) // a transaction whose beginning has room
	commit(1)
	var sizes []int
	for from := changefeed.At("0"); ; {
		page, err := c.Read(t.Context(), changefeed.FullRange(), from, changefeed.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Changes) == 0 {
			break
		}
		sizes, from = append(sizes, len(page.Changes)), page.Next
	}
	if want := []int{2, 4}; !slices.Equal(sizes, want) {
		t.Errorf("pages of %v changes, want %v", sizes, want)
	}
}
