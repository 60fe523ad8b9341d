// Command pictures draws what commands show in a terminal, as SVG files in docs/pictures. The terminal is that of tmux,
// which must be installed.
//
//	go run ./tools/pictures
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A scene is a command line in a terminal, at the moment of its picture.
type scene struct {
	name  string
	shell string        // the command line, which is shown after a prompt
	after time.Duration // when a long-running command is drawn; 0 is at its end
	rows  int
}

// The scenes are drawn in the widths of a usual and of a narrow terminal.
var (
	widths = []int{80, 40}
	scenes = []scene{
		{name: "help", shell: "changefeed --help", rows: 60},
		{name: "query", shell: "changefeed query docstore:shop#orders " +
			"'SELECT o.city, COUNT(1) AS orders FROM o GROUP BY o.city'", rows: 16},
		{name: "leases", shell: "changefeed leases --db shop", rows: 16},
		{name: "demo", shell: "changefeed demo", after: 15 * time.Second, rows: 24},
		{name: "demo-end", shell: "changefeed demo", rows: 50},
	}
)

func main() {
	if err := draw(context.Background(), filepath.Join("docs", "pictures")); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// draw draws all scenes.
func draw(ctx context.Context, to string) error {
	dir, err := os.MkdirTemp("", "changefeed-pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := prepare(ctx, dir); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, s := range scenes {
		for _, width := range widths {
			screen, err := show(ctx, dir, s, width)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			file := filepath.Join(to, fmt.Sprintf("%s-%d.svg", s.name, width))
			if err := os.WriteFile(file, []byte(picture(screen, width)), 0o644); err != nil {
				return err
			}
			fmt.Println(file)
		}
	}
	return nil
}

// orders are the documents of the pictures.
const orders = `{"id":"1","city":"London","total":12.5}
{"id":"2","city":"Paris","total":7}
{"id":"3","city":"London","total":3.2}
{"id":"4","city":"Köln","total":99}
`

// prepare builds the binary and makes a store with a unit.
func prepare(ctx context.Context, dir string) error {
	in := filepath.Join(dir, "orders.ndjson")
	if err := os.WriteFile(in, []byte(orders), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"go", "build", "-o", filepath.Join(dir, "changefeed"), "./cmd/changefeed"},
		{
			filepath.Join(dir, "changefeed"), "import", in, "--db", filepath.Join(dir, "shop"), "--container", "orders",
			"--pk", "/city", "--ranges", "2",
		},
		{
			filepath.Join(dir, "changefeed"), "run", "--source", "docstore:" + filepath.Join(dir, "shop") + "#orders",
			"--name", "mailer", "--create-leases", "--from", "beginning", "--once", "--", "true",
		},
	} {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%q: %w", args, err)
		}
	}
	return nil
}
