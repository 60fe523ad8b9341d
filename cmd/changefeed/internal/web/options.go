package web

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Options say which store is served, at which addresses, and to whom. They are those of [cosmosrest.Options] and
// [docstore.Options], plus addresses, in the form of flags. Errors name the flags.
type Options struct {
	Dir       string        // of the store, created if missing; empty means in memory
	Cache     int64         // bytes of memory for the store's engine; 0 means the default of [docstore.Options]
	NoSync    bool          // answer writes before they are on the disk
	Retention time.Duration // of containers without a policy
	Kept      bool          // a retention that the store already has takes precedence over Retention

	Listen    string // host:port
	Dedicated string // host:port of a dedicated gateway; empty means none
	Plain     bool   // http instead of https
	Cert      string // file with a certificate; if empty, a certificate is created
	KeyFile   string // file with the key of Cert

	Keys      []string // two at most, like ReadOnly; default is the emulator's
	ReadOnly  []string
	Hosts     []string // host names of the server other than loopback, for the emulator's key
	Roles     string   // file with the rights of the principals of Entra tokens
	JWKS      string   // file or address of the keys that sign Entra tokens
	Issuer    string   // of Entra tokens
	Audiences []string // of Entra tokens
	Insecure  bool     // accept the emulator's Entra tokens, which anyone can make

	Faults  bool // clients with the key may order faults: see package faulty
	Lenient bool
	Level   string // consistency level that clients are told; empty means Session
	// changes for which the feed of all versions shows the previous image: all, deletes or none; empty means deletes
	Images     string
	Throughput int // request units a second; 0 or [cosmosrest.Unlimited] means no throttling

	Log *slog.Logger

	Opened      func(db *docstore.DB) (closing func(), err error)   // is told of the open store; nil if nobody asks
	RequestDone func(ctx context.Context, r cosmosrest.RequestDone) // see [cosmosrest.Options]
}

// DefaultListen is the emulator's address, which SDKs expect.
const DefaultListen = "127.0.0.1:8081"

// These environment variables replace Keys and ReadOnly. Other users of the machine cannot see them, unlike keys on a
// command line.
const (
	KeyVariable      = place.ServerKeyVariable // which clients read too
	ReadOnlyVariable = "CHANGEFEED_READ_ONLY_KEY"
)

const wantKey = "the base64 of 16 bytes or more" // for messages

// Check refuses options that are invalid or unsafe: if other machines can reach an address, the server needs a secret
// key. Check takes keys that are not set from the environment.
func (o *Options) Check() error {
	o.Keys, o.ReadOnly = orVariable(o.Keys, KeyVariable), orVariable(o.ReadOnly, ReadOnlyVariable)
	switch {
	case slices.Contains(o.Keys, ""):
		return usage.Flag("account-key", "empty", wantKey)
	case slices.Contains(o.ReadOnly, ""):
		return usage.Flag("read-only-key", "empty", wantKey)
	}
	// Both addresses lead to the same store, so the same rules apply to both.
	for _, f := range []struct{ flag, value string }{{"listen", o.Listen}, {"dedicated-gateway", o.Dedicated}} {
		if f.flag == "dedicated-gateway" && f.value == "" {
			continue
		}
		_, port, err := net.SplitHostPort(f.value)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		switch {
		case err != nil:
			return usage.Flag(f.flag, f.value, "host:port with a port of 0 to 65535, such as "+DefaultListen)
		// IsLoopback expects the rest of a URL, which begins with two slashes. An address without a host, such as
		// :8081, means all interfaces, and is not loopback.
		case place.IsLoopback("//" + f.value):
		// This comes before the check of the keys: if anyone can make a token, anyone has all rights on the store,
		// whatever its keys are.
		case o.Insecure:
			return usage.Flag(f.flag, f.value,
				"a loopback address such as "+DefaultListen+" with --insecure-aad, whose tokens anybody can make")
		case len(o.Keys) == 0 || slices.ContainsFunc(slices.Concat(o.Keys, o.ReadOnly), cosmosrest.IsEmulatorKey):
			return usage.Flag(f.flag, f.value,
				"a loopback address such as "+DefaultListen+", or an --account-key of your own: anybody knows the emulator's, "+
					"and other machines can reach this address")
		}
	}
	for _, name := range o.Hosts {
		if err := cosmosrest.CheckHost(name); err != nil {
			return usage.Flag("allow-host", name, strings.TrimPrefix(err.Error(), "want "))
		}
	}
	if _, ok := images[o.Images]; !ok {
		return usage.Flag("previous-images", o.Images, "all, deletes or none")
	}
	switch {
	case len(o.Keys) > 2:
		return usage.Flag("account-key", "given "+strconv.Itoa(len(o.Keys))+" times", "two at most")
	case len(o.ReadOnly) > 2:
		return usage.Flag("read-only-key", "given "+strconv.Itoa(len(o.ReadOnly))+" times", "two at most")
	case o.Throughput < cosmosrest.Unlimited:
		return usage.Flag("ru", strconv.Itoa(o.Throughput), "0 or more, or -1 to throttle no container")
	case o.Retention < 0:
		return usage.Flag("retention", terminal.Exact(o.Retention), "0 or more, such as 10m or 168h")
	}
	return nil
}

// images are the values of --previous-images.
var images = map[string]cosmosrest.Images{
	"": cosmosrest.ImagesOfDeletes, "deletes": cosmosrest.ImagesOfDeletes, "all": cosmosrest.ImagesOfAll,
	"none": cosmosrest.NoImages,
}

// orVariable returns the keys of a flag or, if there are none, the key in the environment.
func orVariable(keys []string, variable string) []string {
	if key := os.Getenv(variable); key != "" && len(keys) == 0 {
		return []string{key}
	}
	return keys
}

// serverOptions returns the options of the server.
func (o *Options) serverOptions(ctx context.Context) (cosmosrest.Options, error) {
	// Like an account, a server has two keys of each kind, so you can replace them in turn while clients go on. Check
	// has refused more than two.
	two := func(keys []string) (string, string) {
		keys = append(slices.Clone(keys), "", "")
		return keys[0], keys[1]
	}
	s := cosmosrest.Options{
		Lenient: o.Lenient, Hosts: o.Hosts, Consistency: o.Level, PreviousImages: images[o.Images],
		Throughput: o.Throughput, Logger: o.Log, Ending: ctx, RequestDone: o.RequestDone,
	}
	s.Keys.Primary, s.Keys.Secondary = two(o.Keys)
	s.Keys.PrimaryReadOnly, s.Keys.SecondaryReadOnly = two(o.ReadOnly)
	s.Keys.Primary = cmp.Or(s.Keys.Primary, cosmosrest.EmulatorKey) // even if there is a read-only key
	if o.Roles == "" && !o.Insecure {
		return s, nil
	}
	s.Tokens = &cosmosrest.Tokens{Issuer: o.Issuer, Audiences: o.Audiences, JWKS: o.JWKS, Insecure: o.Insecure}
	if o.Roles == "" {
		return s, nil
	}
	text, err := os.ReadFile(o.Roles)
	if err != nil {
		return s, fmt.Errorf("read --roles: %w", err)
	}
	if s.Tokens.Roles, err = cosmosrest.ParseRoles(text); err != nil {
		return s, fmt.Errorf("--roles %s: %w", o.Roles, err)
	}
	return s, nil
}
