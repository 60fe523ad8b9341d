package changefeedtest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// Refusals are tested as exactly as successes: the kind of the error, the write in the error, and an unchanged store.

// limitCases test the limits of the service, which every store must enforce: a program that works with a lenient store
// would fail when it moves to the service.
var limitCases = []containerCase{
	{name: "a batch has 1 to 100 writes", test: batchCount},
	{name: "a batch has at most 2 MB", test: batchSize},
	{name: "an id is a text of 1 to 1,023 bytes", test: badIDs},
	{name: "an item is a JSON object", test: badBodies},
	{name: "an item belongs to the batch's partition key", test: foreignKeys},
	{name: "what is no partition key is refused by name", test: badKeys},
	{name: "an operation that does not exist is refused", test: badOperation},
}

// many returns n upserts.
func many(n int) []feed.Write {
	var writes []feed.Write
	for i := range n {
		writes = append(writes, feed.Write{Body: doc(fmt.Sprint("i", i), "k", i)})
	}
	return writes
}

// batchCount commits 0, 100 and 101 writes.
func batchCount(s *containerTest) {
	key := feed.Key("k")
	s.wantRejected(feed.ErrBadRequest, -1, key)
	s.wantRejected(feed.ErrBadRequest, -1, key, many(101)...)
	results := s.commit(key, many(100)...)
	if results[0].LSN != results[99].LSN {
		s.Errorf("100 writes have LSNs %d to %d", results[0].LSN, results[99].LSN)
	}
}

// large returns an item of about size bytes.
func large(id string, size int) feed.Write {
	return feed.Write{Body: fmt.Appendf(nil, `{"id":%q,"pk":"k","n":0,"text":"%s"}`, id, strings.Repeat("x", size))}
}

// batchSize commits batches and items just below and above 2 MB.
func batchSize(s *containerTest) {
	const half = 1 << 20
	key := feed.Key("k")
	s.wantRejected(feed.ErrBadRequest, -1, key, large("a", half), large("b", half))
	s.wantRejected(feed.ErrBadRequest, -1, key, large("a", 2*half))
	s.commit(key, large("a", half-10_000), large("b", half-10_000))
	s.commit(key, large("c", 2*half-20_000))
}

// badIDs commits missing ids, too long ids and ids of other types, and unusual but valid ids.
func badIDs(s *containerTest) {
	key := feed.Key("k")
	fine := feed.Write{Body: doc("fine", "k", 1)}
	for _, id := range []string{"", strings.Repeat("x", 1024)} {
		text, err := json.Marshal(id)
		if err != nil {
			s.Fatal(err)
		}
		body := fmt.Appendf(nil, `{"id":%s,"pk":"k"}`, text)
		s.wantRejected(feed.ErrBadRequest, 1, key, fine, feed.Write{Body: body})
	}
	for _, body := range []string{`{"pk":"k"}`, `{"id":7,"pk":"k"}`, `{"id":null,"pk":"k"}`} {
		s.wantRejected(feed.ErrBadRequest, 1, key, fine, feed.Write{Body: json.RawMessage(body)})
	}
	for _, op := range []feed.WriteOp{feed.WriteDelete, feed.WriteRead, feed.WritePatch} {
		if op == feed.WritePatch && s.h.lacksAbility(Patching) {
			continue
		}
		s.wantRejected(feed.ErrBadRequest, 0, key, feed.Write{Op: op})
	}
	for _, id := range []string{"é 中 😀", "a b.c-d_e~!@$%^&*()+=;:',<>|[]{}\"", strings.Repeat("x", 255)} {
		text, err := json.Marshal(id)
		if err != nil {
			s.Fatal(err)
		}
		s.commit(key, feed.Write{Body: fmt.Appendf(nil, `{"id":%s,"pk":"k"}`, text)})
		s.commit(key, feed.Write{Op: feed.WriteRead, ID: id}, feed.Write{Op: feed.WriteDelete, ID: id})
	}
}

// badBodies commits bodies other than JSON objects.
func badBodies(s *containerTest) {
	for _, body := range []string{
		"", "null", "7", `"a"`, "[]", `{"id":"a","pk":"k"`, `{"id":"a","pk":"k"}}`,
		`{"id":"a","pk":"k",}`, "{id:1}",
	} {
		for _, op := range []feed.WriteOp{feed.WriteUpsert, feed.WriteCreate, feed.WriteReplace} {
			s.wantRejected(feed.ErrBadRequest, 0, feed.Key("k"), feed.Write{Op: op, Body: json.RawMessage(body)})
		}
	}
}

// foreignKeys commits items with another partition key than that of the batch. They would be stored where no reader
// looks for them.
func foreignKeys(s *containerTest) {
	fine := feed.Write{Body: doc("fine", "k", 1)}
	for _, member := range []string{
		`,"pk":"other"`, `,"pk":7`, `,"pk":null`, "", `,"PK":"k"`, `,"pk":["k"]`,
		`,"pk":{"a":1}`,
	} {
		body := json.RawMessage(`{"id":"a"` + member + `}`)
		s.wantRejected(feed.ErrBadRequest, 1, feed.Key("k"), fine, feed.Write{Body: body})
	}
}

// badKeys commits under malformed keys, and under keys with more components than the container has paths.
func badKeys(s *containerTest) {
	for _, key := range []feed.PartitionKey{
		"x", "[", "[]", "{}", `["a","b"]`, `[["a"]]`, `[{"a":1}]`, feed.Key(strings.Repeat("x", 2049)),
	} {
		s.wantRejected(feed.ErrBadRequest, -1, key, feed.Write{Body: doc("a", "k", 1)})
	}
	_, err := s.Committer.Commit(s.Context(), feed.Key(make(chan int)), many(1))
	if err == nil || !strings.Contains(err.Error(), "chan int") {
		s.Errorf("Commit with a channel for a partition key: %v, want an error that names it", err)
	}
}

// badOperation commits an operation of a later version.
func badOperation(s *containerTest) {
	s.wantRejected(feed.ErrBadRequest, -1, feed.Key("k"), feed.Write{Op: 99, ID: "a", Body: doc("a", "k", 1)})
}

// patchCases test partial updates.
var patchCases = []containerCase{
	{name: "a patch applies its steps in order", needs: []Ability{Patching}, test: patchSteps},
	{name: "a patch that cannot apply refuses the batch", needs: []Ability{Patching}, test: badPatches},
}

func step(op, path, value string) feed.PatchOp {
	return feed.PatchOp{Op: op, Path: path, Value: json.RawMessage(value)}
}

// patchSteps applies every operation in one patch, in order.
func patchSteps(s *containerTest) {
	key := feed.Key("k")
	s.commit(key, feed.Write{Body: json.RawMessage(`{"id":"a","pk":"k","n":1,"list":[1,3],"deep":{"x":true}}`)})
	result := s.commit(key, feed.Write{Op: feed.WritePatch, ID: "a", Patch: []feed.PatchOp{
		step("add", "/list/1", "2"), step("add", "/list/-", "4"), step("set", "/new", `{"y":null}`),
		step("replace", "/deep/x", `"z"`),
		step("incr", "/n", "4"), step("incr", "/n", "-0.5"), step("incr", "/count", "7"),
		{Op: "move", From: "/new", Path: "/deep/new"},
		step("add", "/gone", "1"),
		{Op: "remove", Path: "/gone"},
	}})[0]
	var got struct {
		N, Count float64
		List     []int
		Deep     struct {
			X   string
			New map[string]any
		}
		New, Gone *any
	}
	if err := json.Unmarshal(result.Body, &got); err != nil {
		s.Fatalf("patched item %s: %v", result.Body, err)
	}
	y, hasNull := got.Deep.New["y"]
	if got.N != 4.5 || got.Count != 7 || fmt.Sprint(got.List) != "[1 2 3 4]" || got.Deep.X != "z" || y != nil ||
		!hasNull || got.New != nil || got.Gone != nil {
		s.Errorf("patched item is %s", result.Body)
	}
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("after a patch", changes, "a")
	if len(changes) == 1 && (string(changes[0].Body) != string(result.Body) || result.Created) {
		s.Errorf("the feed has %s, the result was %s, created %v", changes[0].Body, result.Body, result.Created)
	}
}

// badPatches commits patches with a step that cannot apply; the earlier steps must not remain.
func badPatches(s *containerTest) {
	key := feed.Key("k")
	s.commit(key, feed.Write{Body: json.RawMessage(`{"id":"a","pk":"k","text":"t","list":[1]}`)})
	fine := feed.Write{Body: doc("fine", "k", 1)}
	eleven := make([]feed.PatchOp, 11)
	for i := range eleven {
		eleven[i] = step("incr", "/n", "1")
	}
	for _, patch := range [][]feed.PatchOp{
		nil,
		eleven,
		{step("replace", "/missing", "1")},
		{{Op: "remove", Path: "/missing"}},
		{step("set", "/missing/deeper", "1")},
		{step("add", "/list/7", "1")},
		{step("incr", "/text", "1")},
		{step("incr", "/n", `"1"`)},
		{step("set", "/id", `"b"`)},
		{step("set", "/pk", `"other"`)},
		{step("set", "no slash", "1")},
		{step("explode", "/n", "1")},
		{{Op: "move", From: "/missing", Path: "/n"}},
		{step("set", "/n", "1"), step("replace", "/missing", "1")},
	} {
		s.wantRejected(feed.ErrBadRequest, 1, key, fine, feed.Write{Op: feed.WritePatch, ID: "a", Patch: patch})
	}
}
