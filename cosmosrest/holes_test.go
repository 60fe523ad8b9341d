package cosmosrest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// A partition has used up its budget, and another one has not. Each operation has its own answer, whichever comes
// first, and an operation that makes no sense is refused for that: a client would repeat a throttled one.
func TestABulkIsThrottledByOperationWhereOnePartitionHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, cont := drainedWorld(t)
		key := otherPartition(t, cont, "p")
		create := fmt.Sprintf(`{"operationType":"Create","partitionKey":%s,"resourceBody":{"id":"2","pk":%s}}`,
			strconv.Quote(key), strings.Trim(key, "[]"))
		read := `{"operationType":"Read","partitionKey":"[\"p\"]","id":"1"}`
		nameless := `{"operationType":"Read","partitionKey":"[\"p\"]"}`
		if _, statuses := w.bulk(t, `[`+create+`,`+read+`,`+nameless+`]`).results(t, 207); statuses != "201 429 400" {
			t.Errorf("statuses are %s, want 201 429 400", statuses)
		}
	})
}

// A batch writes an item and then reads an older one. The answer has the LSN of the write, which a session token has,
// too.
func TestABatchThatReadsAfterAWriteHasTheLSNOfTheWrite(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", "")
	a := w.send(t, `[{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}},{"operationType":"Read","id":"a"}]`)
	if _, statuses := a.results(t, 200); statuses != "201 200" || a.header.Get("lsn") != "2" {
		t.Errorf("statuses are %s, and the LSN is %s: want 201 200 and 2", statuses, a.header.Get("lsn"))
	}
}
