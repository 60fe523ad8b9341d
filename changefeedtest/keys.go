package changefeedtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// Partition keys decide about order and about owners: if a store took two texts of the same key for two keys, they
// would be handled at the same time.

// keyCases test partition keys and reads of a logical partition.
var keyCases = []containerCase{
	{name: "each kind of partition key comes back as written", test: keyKinds},
	{name: "a logical partition can be read alone, transactions whole", needs: []Ability{KeyReads}, test: keyReads},
	{
		name: "a logical partition can be read through a split", needs: []Ability{KeyReads, Splitting},
		test: keyThroughSplit,
	},
	{
		name: "the place of a key is in the partition that has its items", needs: []Ability{Locating, Splitting},
		test: keyPlaces,
	},
	{
		name:      "the place of a hierarchical key is in the partition that has its items",
		needs:     []Ability{Locating, Splitting, HierarchicalKeys},
		container: Container{Paths: []string{"/pk", "/sub"}}, test: hierarchicalPlaces,
	},
	{
		name: "hierarchical keys have one component a path", needs: []Ability{HierarchicalKeys},
		container: Container{Paths: []string{"/pk", "/sub"}}, test: hierarchicalKeys,
	},
}

// kinds are partition keys, each with the member of the item.
var kinds = []struct {
	key    feed.PartitionKey
	member string
}{
	{feed.Key("London"), `,"pk":"London"`},
	{feed.Key(""), `,"pk":""`},
	{feed.Key(`a"b\c<&>é`), `,"pk":"a\"b\\c<&>é"`},
	{feed.Key(5), `,"pk":5`},
	{feed.Key(-0.5), `,"pk":-0.5`},
	{feed.Key(true), `,"pk":true`},
	{feed.Key(false), `,"pk":false`},
	{feed.Key(nil), `,"pk":null`},
	{feed.Key(feed.Undefined), ""},
}

// keyKinds writes a key of each JSON type. The order of changes is promised per key, so two keys must not become the
// same, and a key must not become two.
func keyKinds(s *containerTest) {
	for _, k := range kinds {
		// The same id in many logical partitions means many items.
		s.commit(k.key, feed.Write{Op: feed.WriteCreate, Body: json.RawMessage(`{"id":"same"` + k.member + `}`)})
	}
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(changes) != len(kinds) {
		s.Fatalf("%d changes, want %d", len(changes), len(kinds))
	}
	for i, c := range changes {
		if c.PartitionKey != kinds[i].key || c.ID != "same" {
			s.Errorf("change has key %s, want %s", c.PartitionKey, kinds[i].key)
		}
		if s.h.lacksAbility(KeyReads) {
			continue
		}
		alone := s.drainAll(s.wholeRange(), beginning, feed.ReadOptions{Key: kinds[i].key})
		if len(alone) != 1 || alone[0].PartitionKey != kinds[i].key {
			s.Errorf("read of key %s gives %+v", kinds[i].key, alone)
		}
	}
}

// keyReads reads a logical partition beside others, with a key whose text begins another key.
func keyReads(s *containerTest) {
	for i := range 10 {
		s.put("mine", fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", i))
		s.put("others", fmt.Sprintf("o%d", i))
		s.put(fmt.Sprint("mine", i), "x")
	}
	o := feed.ReadOptions{Key: s.key("mine")}
	for _, most := range []int{0, 1, 3} {
		o.MaxItems = most
		changes := s.drainAll(s.wholeRange(), beginning, o)
		s.wantIDs("one logical partition", changes, "m0", "n0", "m1", "n1", "m2", "n2", "m3", "n3", "m4", "n4",
			"m5", "n5", "m6", "n6", "m7", "n7", "m8", "n8", "m9", "n9")
	}
	_, end := s.readAll(s.wholeRange(), feed.Position{}, o)
	s.put("others", "later")
	s.put("mine", "later")
	s.wantIDs("one logical partition after now", s.drainAll(s.wholeRange(), end, o), "later")
	o.Key = s.key("nobody")
	s.wantIDs("a logical partition without items", s.drainAll(s.wholeRange(), beginning, o))
}

// keyThroughSplit reads a logical partition before and after a split: it moves as a whole.
func keyThroughSplit(s *containerTest) {
	s.putSpread("i", 10)
	s.put("mine", "a", "b")
	o := feed.ReadOptions{Key: s.key("mine")}
	_, end := s.readAll(s.wholeRange(), beginning, o)
	children := s.split(s.onlyPartition())
	s.put("mine", "c")
	homes := slices.DeleteFunc(children, func(child feed.Partition) bool { return !s.holds(child, "mine") })
	if len(homes) != 1 {
		s.Fatalf("%d partitions have the changes of one logical partition: %+v", len(homes), homes)
	}
	s.wantIDs("one logical partition, from its child", s.drainAll(homes[0].Range, beginning, o), "a", "b", "c")
	s.wantIDs("one logical partition, after its position", s.drainAll(homes[0].Range, end, o), "c")
}

// holds reports whether a partition contains changes of a logical partition.
func (s *containerTest) holds(partition feed.Partition, pk string) bool {
	s.Helper()
	all := s.drainAll(partition.Range, beginning, feed.ReadOptions{})
	return slices.ContainsFunc(all, func(c feed.Change) bool { return c.PartitionKey == s.key(pk) })
}

// keyPlaces compares the places of keys with the partitions of the changes: a request about a key goes to the owner of
// the range with the key's place.
func keyPlaces(s *containerTest) {
	var keys []feed.PartitionKey
	for _, k := range kinds {
		s.commit(k.key, feed.Write{Body: json.RawMessage(`{"id":"same"` + k.member + `}`)})
		keys = append(keys, k.key)
	}
	for i := range 20 {
		s.put(fmt.Sprint("spread", i), "same")
		keys = append(keys, s.key(fmt.Sprint("spread", i)))
	}
	s.wantPlaces(keys)
	for _, wrong := range []feed.PartitionKey{"", "x", `["a"`, `[["a"]]`, `["a","b"]`, `[]`} {
		if place, err := s.Source.(feed.Locator).Locate(s.Context(), wrong); !errors.Is(err, feed.ErrBadRequest) {
			s.Errorf("Locate(%s) = %q, %v, want error %q", wrong, place, err, feed.ErrBadRequest)
		}
	}
}

// hierarchicalPlaces is keyPlaces for keys of two levels; no item has a key of the first level alone.
func hierarchicalPlaces(s *containerTest) {
	var keys []feed.PartitionKey
	for i := range 20 {
		key := feed.Key("k", i)
		s.commit(key, feed.Write{Body: fmt.Appendf(nil, `{"id":"same","pk":"k","sub":%d}`, i)})
		keys = append(keys, key)
	}
	s.wantPlaces(keys)
	if place, err := s.Source.(feed.Locator).Locate(s.Context(), feed.Key("k")); !errors.Is(err, feed.ErrBadRequest) {
		s.Errorf("Locate of the first level = %q, %v, want error %q", place, err, feed.ErrBadRequest)
	}
}

// wantPlaces splits the partition twice, to have keys in different partitions.
func (s *containerTest) wantPlaces(keys []feed.PartitionKey) {
	s.Helper()
	for _, child := range s.split(s.onlyPartition()) {
		s.split(child)
	}
	has := map[feed.PartitionKey]feed.Range{}
	for _, p := range s.partitions() {
		for _, c := range s.drainAll(p.Range, beginning, feed.ReadOptions{}) {
			has[c.PartitionKey] = p.Range
		}
	}
	for _, key := range keys {
		if place, err := s.Source.(feed.Locator).Locate(s.Context(), key); err != nil || !has[key].Holds(place) {
			s.Errorf("Locate(%s) = %q, %v, want a place in %v", key, place, err, has[key])
		}
	}
}

// hierarchicalKeys writes keys of two levels: a component for each path, in their order.
func hierarchicalKeys(s *containerTest) {
	want := map[feed.PartitionKey]string{}
	for _, pk := range []string{"a", "b"} {
		for sub := range 5 {
			key := feed.Key(pk, sub)
			body := fmt.Appendf(nil, `{"id":"%s%d","pk":%q,"sub":%d}`, pk, sub, pk, sub)
			s.commit(key, feed.Write{Body: body})
			want[key] = fmt.Sprint(pk, sub)
		}
	}
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(changes) != len(want) {
		s.Errorf("%d changes, want %d", len(changes), len(want))
	}
	for _, c := range changes {
		if want[c.PartitionKey] != c.ID {
			s.Errorf("change %s has key %s, want that of %s", c.ID, c.PartitionKey, want[c.PartitionKey])
		}
	}
	if s.h.lacksAbility(KeyReads) {
		return
	}
	alone := s.drainAll(s.wholeRange(), beginning, feed.ReadOptions{Key: feed.Key("b", 3)})
	s.wantIDs("one logical partition", alone, "b3")
}
