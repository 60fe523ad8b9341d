package docstore_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestPagesEndBeforeFourMegabytes(t *testing.T) {
	c := container(t, open(t, docstore.Options{}), docstore.ContainerSpec{})
	commit := func(kilobytes ...int) {
		t.Helper()
		var writes []feed.Write
		for i, n := range kilobytes {
			body := fmt.Appendf(nil, `{"id":"%d-%d","pk":"p","text":%q}`, c.Head(), i, strings.Repeat("x", n<<10))
			writes = append(writes, feed.Write{Op: feed.WriteCreate, Body: body})
		}
		if _, err := c.Commit(t.Context(), feed.Key("p"), writes); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		commit(1500)
	}
	commit(500, 500, 900) // a transaction whose beginning has room
	commit(1)
	var sizes []int
	for from := feed.At("0"); ; {
		page, err := c.Read(t.Context(), feed.FullRange(), from, feed.ReadOptions{})
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

// A memory that is used again gives the same pages as a new one, and the page before may be lost.
func TestPagesInOneMemoryAreThoseOfNewOnes(t *testing.T) {
	c := container(t, open(t, docstore.Options{}), docstore.ContainerSpec{})
	for i := range 40 {
		upsert(t, c, fmt.Sprint("doc-", i), fmt.Sprint("p", i%3), i)
	}
	var memory docstore.PageMemory
	for _, size := range []int{7, 1, 100, 13} {
		at := feed.Position{Start: feed.FromBeginning()}
		for pages := 0; ; pages++ {
			o := feed.ReadOptions{MaxItems: size}
			want, err := c.Read(t.Context(), feed.FullRange(), at, o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := memory.Read(t.Context(), c, feed.FullRange(), at, o)
			if err != nil || !slices.EqualFunc(got.Changes, want.Changes, func(a, b feed.Change) bool {
				return reflect.DeepEqual(a, b)
			}) || got.Next != want.Next {
				t.Fatalf("page %d of %d: %+v, %v, want %+v", pages, size, got, err, want)
			}
			if at = got.Next; len(got.Changes) == 0 {
				break
			}
		}
	}
	if n := memory.Size(); n < 1000 || n > 1<<20 {
		t.Errorf("the memory has %d bytes", n)
	}
}
