package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// storeFlags tell which container of which store.
type storeFlags struct {
	db        string
	container string
}

func (s *storeFlags) register(cmd *cobra.Command) {
	s.registerStore(cmd)
	cmd.Flags().StringVar(&s.container, "container", "", "`name` of the container")
	_ = cmd.MarkFlagRequired("container") // fails only for a flag that is not there
}

func (s *storeFlags) registerStore(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.db, "db", "", "`directory` of the store")
	_ = cmd.MarkFlagRequired("db")
	_ = cmd.MarkFlagDirname("db")
}

// open opens a store that must be there.
func (s *storeFlags) open() (*docstore.DB, error) {
	db, err := docstore.Open(s.db, docstore.Options{MustExist: true})
	if errors.Is(err, docstore.ErrNotStore) {
		return nil, fmt.Errorf("--db is %s: there is no store in it: want the directory of one, as changefeed import makes", s.db)
	}
	return db, err
}

// find is a container that must be there.
func (s *storeFlags) find(db *docstore.DB) (*docstore.Container, error) {
	c, err := db.Container(s.container)
	if !errors.Is(err, changefeed.ErrNotFound) {
		return c, err
	}
	var names []string
	for _, c := range db.Containers() {
		names = append(names, c.ID())
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--container is %s: %w: the store has none", s.container, errNoContainer)
	}
	return nil, fmt.Errorf("--container is %s: %w: want one of %s", s.container, errNoContainer, strings.Join(names, ", "))
}

var errNoContainer = errors.New("there is no such container")

// with runs f on the container and closes the store behind it.
func (s *storeFlags) with(f func(c *docstore.Container) error) (err error) {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer closing(db, &err)
	c, err := s.find(db)
	if err != nil {
		return err
	}
	return f(c)
}

// closing closes what a function worked with, and makes a failure its own.
func closing(c io.Closer, err *error) {
	if cerr := c.Close(); *err == nil {
		*err = cerr
	}
}

// standardInput is standard input; where the system allows it, so opened that the end of
// ctx ends a read.
func standardInput(ctx context.Context) *os.File {
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode().IsRegular() {
		return os.Stdin
	}
	f, err := os.OpenFile("/proc/self/fd/0", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return os.Stdin
	}
	context.AfterFunc(ctx, func() { f.Close() })
	return f
}

// whileRead is a context that ends when nobody reads standard output any more, where the
// system can tell: a follower may have nothing to write for a long time, and would not
// find out.
func whileRead(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	info, err := os.Stdout.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ctx, cancel
	}
	// Another opening of the same pipe, which the runtime can poll.
	f, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ctx, cancel
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		if pipe, err := f.SyscallConn(); err == nil && awaitReadable(pipe) == nil {
			cancel()
		}
	})
	return ctx, func() {
		cancel()
		f.Close()
		watching.Wait()
	}
}

// awaitReadable waits for what a pipe's writing end can be readable by only: the reading
// end has been closed. The error is that of a pipe that was closed on our side.
func awaitReadable(pipe syscall.RawConn) error {
	again := false
	return pipe.Read(func(uintptr) bool {
		defer func() { again = true }()
		return again
	})
}
