package cosmosrest

import (
	"fmt"
	"net/http"
	"testing"
)

func TestAFeedCanBeCountedInPlaceOfRead(t *testing.T) {
	w, c := newContainer(t, Options{})
	for i := range 30 {
		w.do(t, "POST", docs, under(fmt.Sprint("p", i)), fmt.Sprintf(`{"id":"%d","pk":"p%d"}`, i, i)).want(t,
			http.StatusCreated)
	}
	made, err := c.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	count := func(more ...string) int {
		headers := map[string]string{"a-im": "Incremental Feed", "x-changefeed-count-pending": "true"}
		for i := 0; i+1 < len(more); i += 2 {
			headers[more[i]] = more[i+1]
		}
		var got struct {
			Items  *int
			Oldest string
		}
		w.do(t, "GET", docs, headers, "").want(t, http.StatusOK).into(t, &got)
		if got.Items == nil || *got.Items > 0 != (got.Oldest != "") {
			t.Fatalf("%v: counted %+v", more, got)
		}
		return *got.Items
	}
	if all := count(); all != 30 { // of several partitions
		t.Errorf("container has %d changes, want 30", all)
	}
	if left, right := count("x-ms-documentdb-partitionkeyrangeid", made[0].ID),
		count("x-ms-start-epk", made[1].Range.Min, "x-ms-end-epk", "FF"); left == 0 || right == 0 || left+right != 30 {
		t.Errorf("halves have %d and %d changes, want 30 together", left, right)
	}
	if one := count("x-ms-documentdb-partitionkey", `["p7"]`); one != 1 {
		t.Errorf("one key has %d changes, want 1", one)
	}
	if rest := count("if-none-match", `"20"`); rest != 10 {
		t.Errorf("behind LSN 20 there are %d changes, want 10", rest)
	}
	for _, headers := range []map[string]string{
		{"a-im": "nothing"},
		{"a-im": "Incremental Feed", "if-none-match": "x"},
		{"a-im": "Full-Fidelity Feed"},
	} {
		headers["x-changefeed-count-pending"] = "true"
		w.do(t, "GET", docs, headers, "").want(t, http.StatusBadRequest)
	}
	w.key = ""
	w.do(t, "GET", docs, map[string]string{"a-im": "Incremental Feed", "x-changefeed-count-pending": "true"},
		"").want(t, http.StatusUnauthorized)
}
