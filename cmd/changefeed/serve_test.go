package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

func TestEndpointsAreForClients(t *testing.T) {
	for _, c := range []struct {
		ip    string
		plain bool
		want  string
	}{
		{"127.0.0.1", false, "https://127.0.0.1:8081/"},
		{"127.0.0.1", true, "http://127.0.0.1:8081/"},
		{"::1", false, "https://[::1]:8081/"},
		{"192.0.2.1", false, "https://192.0.2.1:8081/"},
		{"0.0.0.0", false, "https://localhost:8081/"},
		{"::", false, "https://localhost:8081/"},
	} {
		o := serveOptions{plain: c.plain}
		if got := o.url(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8081}); got != c.want {
			t.Errorf("%s: %s, want %s", c.ip, got, c.want)
		}
	}
}

func TestServeTellsHowToConnect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, to := io.Pipe()
	root := rootCommand(new(bool))
	root.SetArgs([]string{"serve", "--db", dir, "--listen", "127.0.0.1:0", "--dedicated-gateway", "127.0.0.1:0", "--http", "-o", "json"})
	root.SetOut(to)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told serving
	if err := json.Unmarshal(line, &told); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if told.Store != dir || told.Key != cosmosrest.EmulatorKey || told.Certificate != "" ||
		told.Connection != "AccountEndpoint="+told.Endpoint+";AccountKey="+told.Key+";" {
		t.Errorf("told %+v: want the store %s, the well-known key, no certificate, and a connection string", told, dir)
	}
	for _, endpoint := range []string{told.Endpoint, told.Dedicated} {
		client, err := cosmos.Open(t.Context(), endpoint, cosmos.Key(told.Key), cosmos.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Container(t.Context(), "shop", "orders"); !errors.Is(err, changefeed.ErrNotFound) {
			t.Errorf("%s: got %v, want that there is no such container", endpoint, err)
		}
		client.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, tlsFolder)); err == nil {
		t.Error("there is a certificate, though the server spoke http")
	}
}

func TestAStoreKeepsTheRetentionThatItWasServedWith(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, start := range []struct {
		flag  time.Duration
		given bool
		want  time.Duration
	}{
		{cosmosrest.DefaultRetention, false, cosmosrest.DefaultRetention},
		{168 * time.Hour, true, 168 * time.Hour},
		{cosmosrest.DefaultRetention, false, 168 * time.Hour},
		{0, true, 0},
		{cosmosrest.DefaultRetention, false, 0},
	} {
		o := serveOptions{retention: start.flag}
		if err := o.retain(t.Context(), db, start.given); err != nil {
			t.Fatal(err)
		}
		if got, set := db.Retention(); got != start.want || !set {
			t.Errorf("retention is %v after a start with %v, given %v: want %v", got, start.flag, start.given, start.want)
		}
	}
}
