package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/memory"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestServeTellsHowToConnect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, to := io.Pipe()
	root := rootCommand(new(bool))
	root.SetArgs([]string{
		"serve", "--db", dir, "--listen", "127.0.0.1:0", "--dedicated-gateway", "127.0.0.1:0",
		"--http", "-o", "json",
	})
	root.SetOut(to)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told web.Endpoints
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if string(told.Store) != dir || told.Key != cosmosrest.EmulatorKey || told.Certificate != "" ||
		told.Connection != "AccountEndpoint="+told.Endpoint+";AccountKey="+told.Key+";" {
		t.Errorf("told %+v: want the store %s, the well-known key, no certificate, and a connection string", told, dir)
	}
	for _, endpoint := range []string{told.Endpoint, string(told.Dedicated)} {
		client, err := cosmos.Open(t.Context(), endpoint, cosmos.Key(told.Key), cosmos.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Container(t.Context(), "shop", "orders"); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("%s: got %v, want that there is no such container", endpoint, err)
		}
		client.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tls")); err == nil {
		t.Error("there is a certificate, though the server spoke http")
	}
}

// The engine and Go's heap share the memory, whichever of the two the engine's part belongs to, and what the user says
// of the heap goes before that.
func TestServeDividesItsMemory(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer debug.SetGCPercent(percent)
	for _, users := range []string{"", "50MiB"} {
		t.Setenv("GOMEMLIMIT", users)
		t.Setenv("GOGC", "")
		var o serveOptions
		o.memory.Value = 512 << 20
		end := o.boundMemory()
		shares, limit := memory.Of(512<<20), debug.SetMemoryLimit(-1)
		want := shares.Heap
		switch {
		case users != "":
			want = before
		case !docstore.OffHeap:
			want += shares.Engine
		}
		if o.Cache != shares.Engine || limit != want {
			t.Errorf("with GOMEMLIMIT %q the engine has %d MB and the limit is %d MB, want %d and %d", users,
				o.Cache>>20, limit>>20, shares.Engine>>20, want>>20)
		}
		if now := debug.SetGCPercent(100); now != serverGC {
			t.Errorf("the heap may grow by %d %%, want %d", now, serverGC)
		}
		end()
		if now := debug.SetMemoryLimit(-1); now != before {
			t.Errorf("the limit is %d after the server, want %d", now, before)
		}
	}
}

// What the user says of the collector goes before what we say.
func TestGOGCGoesBeforeOurs(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	t.Setenv("GOGC", "50")
	if letHeapGrow(serverGC); debug.SetGCPercent(50) != 50 {
		t.Error("the heap may grow by another percentage than that of GOGC")
	}
}

// A store keeps the versions that it was told to keep, when its next server is told nothing.
func TestAStoreKeepsItsRetention(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	byDefault := cosmosrest.DefaultRetention
	for _, tt := range []struct {
		flags []string
		want  time.Duration
	}{
		{[]string{"--retention", "3h"}, 3 * time.Hour},
		{nil, 3 * time.Hour},
		{[]string{"--retention", byDefault.String()}, byDefault}, // which is given, if it is the default or not
	} {
		ctx, stop := context.WithCancel(t.Context())
		out, to := io.Pipe()
		serve := append([]string{"serve", "--db", dir, "--listen", "127.0.0.1:0", "--http", "-o", "json"}, tt.flags...)
		_, ended := begin(ctx, to, serve...)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := db.Retention(); got != tt.want {
			t.Errorf("after serve %q: got a retention of %v, want %v", tt.flags, got, tt.want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
