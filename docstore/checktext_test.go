package docstore

import (
	"strings"
	"testing"
)

func TestACheckNamesADamagedRecord(t *testing.T) {
	db, err := Open("", Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), ContainerSpec{ID: "orders", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Upsert(t.Context(), []byte(`{"id":"i1","pk":"p"}`)); err != nil {
		t.Fatal(err)
	}
	place, err := c.LogicalPartition(`["p"]`)
	if err != nil {
		t.Fatal(err)
	}
	w := db.eng.NewBatch(0)
	w.Set(docKey(c.num, place.epk, `["p"]`, "i1"), []byte{1})
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	err = db.Check()
	if err == nil {
		t.Fatal("the check finds no damage")
	}
	if says := err.Error(); !strings.Contains(says, `orders: item "i1" of ["p"]`) || strings.Contains(says, `\x`) {
		t.Errorf("the check says %s, want the item by name, and no bytes", says)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
