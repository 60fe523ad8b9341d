package place

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Containers for commands, which treat a store and an account alike: they use source and committer, and Local or Remote
// where the two differ.

// A Container is a container for a command, in a store or in an account.
type Container struct {
	Address Address
	Paths   []string // of the partition key, if known
	Source  feed.Source
	writer  feed.Committer
	Local   *docstore.Container // in a store; otherwise nil
	Remote  *cosmos.Container   // in an account; otherwise nil
	Account *Account            // of Remote

	retries *Patience // for writes to an account; nil is no retries
}

// Stored returns a container of a store.
func Stored(c *docstore.Container, a Address) *Container {
	return &Container{Address: a, Paths: c.Spec().Paths, Source: c, writer: c, Local: c}
}

// Concrete is the common interface of a container of a store and of an account.
type Concrete interface {
	feed.Source
	feed.Committer
	identity
}

// identity distinguishes a container from others.
type identity interface {
	Database() string
	ID() string
	RID() string
}

// Concrete returns Local or Remote, whichever is set.
func (c *Container) Concrete() Concrete {
	if c.Local != nil {
		return c.Local
	}
	return c.Remote
}

// KeyPaths returns the paths of the partition key as a person writes them; none if they are not known.
func (c *Container) KeyPaths() []string {
	if c.Remote == nil {
		return c.Paths
	}
	var paths []string
	for _, path := range c.Remote.KeyPaths() {
		paths = append(paths, "/"+strings.Join(path, "/"))
	}
	return paths
}

// Commit writes to a single partition key. While an account is away, Commit retries: a write that was stored but not
// acknowledged is then written twice.
func (c *Container) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) error {
	write := func() error {
		_, err := c.writer.Commit(ctx, key, writes)
		return err
	}
	if c.retries == nil {
		return write()
	}
	return c.retries.retryWhile(ctx, write)
}

// Upsert writes a document with Commit. A store reads the partition key from the body, because a store can also say why
// an unreadable key is wrong.
func (c *Container) Upsert(ctx context.Context, key feed.PartitionKey, body []byte) error {
	if c.Local != nil {
		_, err := c.Local.Upsert(ctx, body)
		return err
	}
	if key == "" && json.Valid(body) {
		return fmt.Errorf("%w: partition key %s is a number out of range: want one that a float64 holds",
			feed.ErrBadRequest, strings.Join(c.Paths, ","))
	}
	err := c.Commit(ctx, key, []feed.Write{{Op: feed.WriteUpsert, Body: body}})
	if w, ok := errors.AsType[*feed.WriteError](err); ok {
		err = w.Err
	}
	return err
}

// Retains refuses a mode that the container does not support. An account reports that itself.
func (c *Container) Retains(m feed.Mode) error {
	if m == feed.AllVersionsAndDeletes && c.Local != nil && c.Local.Retention() == 0 {
		return usage.Error{Err: fmt.Errorf("--mode is all: container %q keeps no versions: want --mode latest, or a container "+
			"made with --retention", c.Address.Name())}
	}
	return nil
}

// An Opener opens containers, stores and accounts, each only once, because a second opening of a store fails.
type Opener struct {
	Retries *Patience    // for the containers of accounts; nil is no retries
	Log     *slog.Logger // for the clients of accounts; nil is silence
	AtOnce  bool         // tell that an account is throttled, and do not wait: the caller has another way to wait

	flags    Settings
	stores   *openStores
	borrows  bool // the stores are another opener's
	lent     *docstore.DB
	accounts map[string]*Account
	logins   map[*Login]*Account
}

// openStores are the open stores by their directories. Openers can share them, each in a goroutine of its own.
type openStores struct {
	mu    sync.Mutex
	byDir map[string]*docstore.DB
	said  sync.Map // what the clients of accounts have said about containers
}

// NewOpener makes an Opener whose accounts use these settings.
func NewOpener(flags Settings) *Opener {
	return &Opener{
		flags: flags, stores: &openStores{byDir: map[string]*docstore.DB{}}, accounts: map[string]*Account{},
		logins: map[*Login]*Account{},
	}
}

// Sharing makes an Opener with the stores of o and with accounts of its own, which use these settings. Close it before
// o. Only o closes the stores.
func (o *Opener) Sharing(flags Settings) *Opener {
	shared := NewOpener(flags)
	shared.stores, shared.borrows = o.stores, true
	return shared
}

// OfStore makes an Opener for a store that somebody else has open and closes, and the address of the store: whatever
// directory an address has, it is this store.
func OfStore(db *docstore.DB, dir string) (*Opener, Address) {
	o := NewOpener(Settings{})
	o.lent, o.borrows = db, true
	return o, Address{Dir: cmp.Or(dir, "memory")}
}

// Parse reads an address as [Settings.Parse] does.
func (o *Opener) Parse(field, text string) (Address, error) { return o.flags.Parse(field, text) }

// Close closes everything that was opened.
func (o *Opener) Close() error {
	var errs []error
	if !o.borrows {
		for _, db := range o.stores.byDir {
			errs = append(errs, db.Close())
		}
	}
	for _, a := range slices.AppendSeq(slices.Collect(maps.Values(o.accounts)), maps.Values(o.logins)) {
		if a.client != nil { // that of a store is the store itself
			a.client.Close()
		}
		a.http.CloseIdleConnections() // our own connections
	}
	return errors.Join(errs...)
}

// Open opens an existing container.
func (o *Opener) Open(ctx context.Context, a Address) (*Container, error) {
	if a.Dir == "" {
		return o.openRemote(ctx, a)
	}
	db, err := o.openExisting(a)
	if err != nil {
		return nil, err
	}
	c, err := find(db, a)
	if err != nil {
		return nil, err
	}
	return Stored(c, a), nil
}

// openExisting opens an existing store.
func (o *Opener) openExisting(a Address) (*docstore.DB, error) {
	db, err := o.openStore(a, docstore.Options{MustExist: true})
	// Only import makes a store here. Otherwise any other command would show an empty store for a mistyped path.
	if errors.Is(err, docstore.ErrNotStore) {
		err = usage.Missing{Err: fmt.Errorf("%s: there is no store in it: want the directory of a store, which changefeed "+
			"import or create makes", a.quoteStore())}
	}
	return db, err
}

// openStore opens the store of an address, unless the store is open.
func (o *Opener) openStore(a Address, options docstore.Options) (*docstore.DB, error) {
	if o.lent != nil {
		return o.lent, nil
	}
	dir := directory(a.Dir)
	o.stores.mu.Lock() // others wait, because they may want the same store
	defer o.stores.mu.Unlock()
	if db := o.stores.byDir[dir]; db != nil {
		_, err := db.Container(a.Name())
		if !errors.Is(err, docstore.ErrFailed) && !errors.Is(err, docstore.ErrClosed) {
			return db, nil
		}
		_ = db.Close() // its users have been told that the disk has failed, and open it again as this one does
		delete(o.stores.byDir, dir)
	}
	db, err := docstore.Open(filepath.Clean(a.Dir), options)
	if err != nil {
		return nil, openError(err, a)
	}
	o.stores.byDir[directory(a.Dir)] = db // a new directory has its whole path now
	return db, nil
}

// directory returns the one path of a directory that several paths name, if it exists.
func directory(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path)
	}
	if real, err := filepath.EvalSymlinks(whole); err == nil {
		return real
	}
	return whole
}

// openError adds advice to an error of opening the store of an address: the address of the same container or, for the
// commands about a whole store, of the server.
func openError(err error, a Address) error {
	if errors.Is(err, docstore.ErrInUse) {
		path := ""
		if a.Container != "" {
			path = "/" + a.Database + "/" + a.Container
		}
		return fmt.Errorf("%w; if changefeed serve has it open, want its address, such as http://127.0.0.1:8081%s",
			err, path)
	}
	return err
}

// Where names the store or account of an address, for a question to a person.
func (o *Opener) Where(ctx context.Context, a Address) (string, error) {
	if a.Dir != "" {
		return "store " + a.Dir, nil
	}
	opened, err := o.Account(ctx, a)
	if err != nil {
		return "", err
	}
	return opened.Endpoint, nil
}

// find returns an existing container.
func find(db *docstore.DB, a Address) (*docstore.Container, error) {
	c, err := db.Container(a.Name())
	if !errors.Is(err, feed.ErrNotFound) {
		return c, err
	}
	var names []string
	for _, c := range db.Containers() {
		names = append(names, c.Name())
	}
	return nil, absent(a, ErrNoContainer, "the store", names)
}

// ErrNoContainer is wrapped by the error of an address whose container does not exist.
var ErrNoContainer = errors.New("there is no such container")

// Neighbours returns the containers whose leases may be in this container: the containers of the same store or, in an
// account, of the same database.
func (o *Opener) Neighbours(ctx context.Context, leases *Container) (all []*Container, err error) {
	if leases.Local != nil {
		o.stores.mu.Lock()
		db := o.stores.byDir[directory(leases.Address.Dir)]
		o.stores.mu.Unlock()
		for _, c := range db.Containers() {
			all = append(all, Stored(c, Address{Dir: leases.Address.Dir, Database: c.Database(), Container: c.ID()}))
		}
		return all, nil
	}
	ids, err := leases.Account.IDs(ctx, containers, "dbs", leases.Address.Database, "colls")
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, id := range ids {
		found, err := o.Open(ctx, leases.Address.Beside(id))
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}
