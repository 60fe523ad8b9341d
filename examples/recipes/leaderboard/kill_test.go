package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 21

// truth is what the writer has written: games are added, corrected and marked as deleted.
type truth struct {
	container *docstore.Container
	games     map[string]game
	writes    int
}

func (w *truth) write(ctx context.Context) error {
	id := fmt.Sprint(rand.IntN(len(w.games) + 2)) // often a known game
	g, known := w.games[id]
	if !known {
		g.Player = fmt.Sprint("player-", rand.IntN(20))
	}
	g.Points, g.Deleted = rand.IntN(100), known && rand.IntN(3) == 0
	body := fmt.Appendf(nil, `{"id":%q,"player":%q,"points":%d,"deleted":%t}`, id, g.Player, g.Points, g.Deleted)
	w.games[id] = g
	w.writes++
	_, err := w.container.Upsert(ctx, body)
	return err
}

func (w *truth) totals() map[string]int {
	sum := map[string]int{}
	for _, g := range w.games {
		sum[g.Player] += 0 // a player whose games are all deleted has the total 0
		if !g.Deleted {
			sum[g.Player] += g.Points
		}
	}
	return sum
}

func stored(ctx context.Context, board *docstore.Container) (map[string]int, error) {
	sum := map[string]int{}
	for it, err := range board.Items(ctx, feed.FullRange(), "") {
		if err != nil {
			return nil, err
		}
		if e := (entry{}); it.ID == "total" {
			if err := json.Unmarshal(it.Body, &e); err != nil {
				return nil, err
			}
			sum[e.Player] = e.Points
		}
	}
	return sum, nil
}

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

func TestTotalsAreRightAlthoughProcessesAreKilled(t *testing.T) {
	server := fleettest.StartAccount(t, docstore.ContainerSpec{ID: "games", Paths: []string{"/player"}, Ranges: 4},
		docstore.ContainerSpec{ID: "board", Paths: []string{"/player"}})
	games, err := server.DB.Container("shop/games")
	if err != nil {
		t.Fatal(err)
	}
	board, err := server.DB.Container("shop/board")
	if err != nil {
		t.Fatal(err)
	}
	w := &truth{container: games, games: map[string]game{}}
	all := fleettest.Against(server, "shop/games", t.TempDir())
	all.KillMany(t, kills, w.write, func(kill int) {
		switch kill {
		case kills / 3:
			all.Freeze(t)
		case kills / 2:
			fleettest.Split(t, games)
		}
	})
	want := w.totals()
	all.Eventually(t, func() error {
		got, err := stored(t.Context(), board)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("totals are %v, and should be %v", got, want)
		}
		return err
	})
	all.Stop(t)
	if got, err := stored(t.Context(), board); err != nil || !maps.Equal(got, want) {
		t.Errorf("after the stop totals are %v, %v, and should be %v", got, err, want)
	}
	t.Logf("%d writes of %d games, %d kills", w.writes, len(w.games), kills)
}

func TestItRunsOnALocalStore(t *testing.T) {
	if said := fleettest.RunLocally(t, t.TempDir()); !strings.Contains(said, " 1. ") {
		t.Error(said)
	}
}

func TestAnOlderVersionAddsNothing(t *testing.T) {
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	board, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "board", Paths: []string{"/player"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		lsn  int64
		body string
		want int
	}{
		{5, `{"player":"Ada","points":50}`, 50},
		{5, `{"player":"Ada","points":50}`, 50},
		{4, `{"player":"Ada","points":40}`, 50},
		{6, `{"player":"Ada","points":20}`, 20},
		{7, `{"player":"Ada","points":20,"deleted":true}`, 0},
		{6, `{"player":"Ada","points":20}`, 0},
	} {
		b := &feed.Batch{Changes: []feed.Change{
			{ID: "1", PartitionKey: feed.Key("Ada"), LSN: step.lsn, Body: []byte(step.body)},
		}}
		if err := changefeed.Items(view{board}.handle).Handle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got, err := stored(t.Context(), board); got["Ada"] != step.want || err != nil {
			t.Errorf("after LSN %d the total is %d, %v; should be %d", step.lsn, got["Ada"], err, step.want)
		}
	}
}

func TestTotalsOfALocalStoreAreRightAfterKills(t *testing.T) {
	all, db := fleettest.KillLocally(t, t.TempDir(), "leaderboard-data", "shop/games", nil)
	games, err := db.Container("shop/games")
	if err != nil {
		t.Fatal(err)
	}
	board, err := db.Container("shop/board")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for it, err := range games.Items(t.Context(), feed.FullRange(), "") {
		var g game
		if err := errors.Join(err, json.Unmarshal(it.Body, &g)); err != nil {
			t.Fatal(err)
		}
		want[g.Player] += g.Points
	}
	if len(want) == 0 {
		t.Fatal("no game was played")
	}
	all.Eventually(t, func() error {
		got, err := stored(t.Context(), board)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("totals are %v, and should be %v", got, want)
		}
		return err
	})
	all.Stop(t)
}
