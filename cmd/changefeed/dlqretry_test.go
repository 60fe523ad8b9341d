package main

import (
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// A key is released if its lease says that it is held, or a letter says that it may be.
func TestOnlyAKeyThatIsHeldCanBeReleased(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), container, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.Create(t.Context(), changefeed.Record{
		Kind: changefeed.KindLease, Token: "-FF", Range: changefeed.FullRange(), Version: 1, Position: changefeed.Position{Token: "5"},
		Properties: map[string]string{"changefeed.held": `{"at":"5","keys":["[\"Rome\"]"]}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	letter := func(city string, d changefeed.Disposition, age time.Duration) changefeed.DeadLetter {
		return changefeed.DeadLetter{Disposition: d, Parked: time.Now().Add(-age), Change: changefeed.Change{PartitionKey: changefeed.Key(city)}}
	}
	letters := []changefeed.DeadLetter{
		letter("Oslo", changefeed.DispositionHeld, time.Hour), letter("Paris", changefeed.DispositionFailed, time.Second),
		letter("London", changefeed.DispositionFailed, time.Hour),
	}
	o := redriveOptions{letterOptions: letterOptions{name: "mailer"}}
	for city, held := range map[string]bool{"Rome": true, "Oslo": true, "Paris": true, "London": false, "Roma": false} {
		if err := o.checkHeld(t.Context(), leases, letters, changefeed.Key(city)); (err == nil) != held {
			t.Errorf("%s is held: %v, but: %v", city, held, err)
		}
	}
}
