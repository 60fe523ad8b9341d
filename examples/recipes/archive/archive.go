package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// row is a change in a file.
type row struct {
	LSN  int64     `json:"lsn" parquet:"lsn"`
	Time time.Time `json:"time" parquet:"time,timestamp(microsecond)"`
	Op   string    `json:"op" parquet:"op"`
	Key  string    `json:"key" parquet:"key"`
	ID   string    `json:"id" parquet:"id"`
	Body string    `json:"body" parquet:"body"` // empty for a delete
}

// archive writes the files. The name of a file has the keys of the lease, and the LSN after which the file begins: that
// is the last LSN of the file before. So the files of a range are a chain, and of two files that would follow the same
// file, only one can have the name. A redelivered batch, divided as before or not, goes on at the end of the chain.
type archive struct{}

// Needs says that a chain needs the changes in order, and that the chains of two leases cannot be joined.
func (archive) Needs() changefeed.Needs { return changefeed.Needs{InOrder: true, NeverJoin: true} }

// Handle writes the changes of a batch that are in no file yet, a file for each day.
func (archive) Handle(ctx context.Context, b *feed.Batch) error {
	end, day, days := endOf(b.Range), "", map[string][]row{}
	for _, c := range b.Changes {
		if c.LSN > end {
			day = max(day, c.Time.UTC().Format(time.DateOnly))
			key, body := string(c.PartitionKey), string(c.Body)
			days[day] = append(days[day], row{c.LSN, c.Time, c.Op.String(), key, c.ID, body})
		}
	}
	for _, day := range slices.Sorted(maps.Keys(days)) {
		rows, name := days[day], fmt.Sprintf("date=%s/r%s.%020d.%s", day, b.Range, end, format)
		if err := save(ctx, filepath.Join(*target, name), rows); err != nil {
			return err
		}
		fmt.Println(len(rows), "changes in", name)
		end = rows[len(rows)-1].LSN
	}
	return nil
}

// endOf returns the last LSN in the files of a range, 0 without a file. Before a split, the files had the wider range
// of the parent.
func endOf(r feed.Range) int64 {
	newest, from := "", ""
	for _, file := range must(filepath.Glob(filepath.Join(*target, "date=*", "r*."+format))) {
		part := strings.Split(filepath.Base(file), ".")
		if must(feed.ParseRange(part[0][1:])).Contains(r) && part[1] > from {
			newest, from = file, part[1]
		}
	}
	rows := []row{{}}
	if newest != "" && format == "parquet" {
		rows = must(parquet.ReadFile[row](newest))
	} else if newest != "" {
		lines := bytes.Split(bytes.TrimSpace(must(os.ReadFile(newest))), []byte("\n"))
		must(0, json.Unmarshal(lines[len(lines)-1], &rows[0]))
	}
	return rows[len(rows)-1].LSN
}

// save writes a file under a temporary name, and gives it its name when the disk has it. If the name is taken, another
// owner of the lease was faster: then the batch comes again.
func save(ctx context.Context, file string, rows []row) error {
	dir := filepath.Dir(file)
	must(0, os.MkdirAll(dir, 0o755))
	f := must(os.CreateTemp(dir, ".new-*"))
	defer os.Remove(f.Name())
	var err error
	if format == "parquet" {
		err = parquet.Write(f, rows)
	} else {
		for _, r := range rows {
			err = errors.Join(err, json.NewEncoder(f).Encode(r))
		}
	}
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close(), context.Cause(ctx))
	if err == nil {
		err = os.Link(f.Name(), file)
	}
	d := must(os.Open(dir))
	return errors.Join(err, d.Sync(), d.Close())
}
