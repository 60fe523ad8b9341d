package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// game is the result of a game. Your service corrects a game by a replace, and takes a game back by the mark deleted.
type game struct {
	Player  string `json:"player"`
	Points  int    `json:"points"`
	Deleted bool   `json:"deleted"`
}

// entry is a document of the board: the total of a player, with the id "total", or the part of a game in the total.
type entry struct {
	ID     string `json:"id"`
	Player string `json:"player"`
	Points int    `json:"points"`
	LSN    int64  `json:"lsn"` // of the version of the game that is in the total: the position of the game
}

// view is the handler that keeps the board.
type view struct{ board feed.Committer }

// handle adds each game to the total of its player, unless an earlier delivery has done so. The part and the total are
// written in a transaction, which fails if another instance has written the total meanwhile. Then the batch is
// redelivered.
func (v view) handle(ctx context.Context, _ *feed.Batch, items []changefeed.Item[game]) error {
	for _, it := range items {
		key, game := it.PartitionKey, it.Value
		total, etag, err := v.read(ctx, key, "total")
		part, _, err2 := v.read(ctx, key, "game-"+it.ID)
		switch {
		case err != nil || err2 != nil:
			return errors.Join(err, err2)
		case it.LSN <= part.LSN:
			continue
		case game.Deleted:
			game.Points = 0
		}
		total.Player, total.Points = game.Player, total.Points+game.Points-part.Points
		part.Player, part.Points, part.LSN = game.Player, game.Points, it.LSN
		first := feed.Write{Op: feed.WriteReplace, Body: must(json.Marshal(total)), IfMatch: etag}
		if etag == "" {
			first.Op = feed.WriteCreate
		}
		if _, err := v.board.Commit(ctx, key, []feed.Write{first, {Body: must(json.Marshal(part))}}); err != nil {
			return fmt.Errorf("add game %s of %s: %w", it.ID, key, err)
		}
	}
	return nil
}

// read reads an entry. If the entry is missing, the ETag is empty.
func (v view) read(ctx context.Context, key feed.PartitionKey, id string) (e entry, etag string, err error) {
	got, err := v.board.Commit(ctx, key, []feed.Write{{Op: feed.WriteRead, ID: id}})
	if errors.Is(err, feed.ErrNotFound) {
		return entry{ID: id}, "", nil
	}
	if err != nil {
		return e, "", err
	}
	return e, got[0].ETag, json.Unmarshal(got[0].Body, &e)
}

// show follows the feed of the board, and prints the ten best players after each page.
func show(ctx context.Context, board feed.Source) {
	totals, from := map[string]int{}, feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, board, feed.FullRange(), from, changefeed.PullOptions{Follow: true}) {
		for _, c := range must(page, err).Changes {
			if e := (entry{}); c.ID == "total" && json.Unmarshal(c.Body, &e) == nil {
				totals[e.Player] = e.Points
			}
		}
		best := slices.SortedFunc(maps.Keys(totals), func(a, b string) int { return cmp.Compare(totals[b], totals[a]) })
		for i, player := range best[:min(10, len(best))] {
			fmt.Printf("%2d. %-10s %6d\n", i+1, player, totals[player])
		}
		fmt.Println()
	}
}
