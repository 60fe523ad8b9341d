package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The terminal of a scene: a server of tmux of its own, so that sessions of the user are left alone.

// atMost is the longest time of a scene.
const atMost = time.Minute

// show runs a scene in a terminal and returns its lines, with the codes of their colours.
func show(ctx context.Context, dir string, s scene, width int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	// A server ends some time after its last session, so each scene has its own.
	socket := fmt.Sprintf("%s-%s-%d", filepath.Base(dir), s.name, width)
	tmux := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, "tmux", append([]string{"-L", socket, "-f", "/dev/null"}, args...)...)
		c.Dir = dir
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "LC_ALL=C.UTF-8")
		c.Stderr = os.Stderr
		return c.Output()
	}
	// The file tells that the command has ended. The shell stays, because a terminal is gone with its last process.
	ended := filepath.Join(dir, "ended")
	if err := os.Remove(ended); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	shell := fmt.Sprintf("printf '%%s\\n' %s; %s; touch ended; exec cat", quote("$ "+s.shell), s.shell)
	if _, err := tmux("new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(s.rows), shell); err != nil {
		return nil, fmt.Errorf("start tmux: %w", err)
	}
	defer func() { _, _ = tmux("kill-server") }() // the session may have ended
	begun := time.Now()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the command has not ended after %v", atMost)
		case <-time.After(50 * time.Millisecond):
			_, err := os.Stat(ended)
			over = err == nil || s.after > 0 && time.Since(begun) >= s.after
		}
	}
	screen, err := tmux("capture-pane", "-e", "-p", "-S", "-")
	return strings.Split(strings.TrimRight(string(screen), "\n"), "\n"), err
}

// quote quotes a text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
