package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/web"
)

// The command serve: flags become the options of cosmosrest.Server, and unsafe combinations
// are refused before anything is opened. Addresses are served by internal/web.

// serveOptions are the flags of serve.
type serveOptions struct {
	db         string
	listen     string
	dedicated  string
	plain      bool
	keys       []string
	readOnly   []string
	cert       string
	keyFile    string
	lenient    bool
	throughput int
	noSync     bool
	images     bool
	retention  time.Duration
	roles      string
	jwks       string
	issuer     string
	audiences  []string
	insecure   bool
	output     *choice
}

// Keys in the environment are invisible to other users of the machine, unlike those on a
// command line.
const (
	serveKeyVariable      = "CHANGEFEED_KEY"
	serveReadOnlyVariable = "CHANGEFEED_READ_ONLY_KEY"
)

// serverHeap is near where the collector works harder, in bytes. All that queries, answers
// and connections hold together stays below it.
const serverHeap = 768 << 20

const (
	defaultListen = "127.0.0.1:8081" // the emulator's, which SDKs expect
	tlsFolder     = "tls"            // of a store, for the certificate
)

// serveCommand is the command serve.
func serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a store by the protocol of Azure Cosmos DB",
		Long: `Serve a store by the protocol of Azure Cosmos DB, so that unmodified SDKs work with it.

Without --db the store is in memory, and gone when the server ends.

The server speaks https with a certificate for localhost, 127.0.0.1 and ::1. It makes
one at the first start and keeps it in DIR/tls until it is about to end; without --db
there is a new one each time. Clients must be made to trust it: the output says how.

The key is the emulator's well-known one. Anybody knows it, so for an address that other
machines can reach there must be --key or $CHANGEFEED_KEY: the base64 of 16 bytes or
more, such as openssl rand -base64 64 prints.

With --roles, Entra tokens are accepted too. They are verified with the keys of --jwks,
and the file says what principals may do. See docs/server.md.

The first line of -o json has the endpoint, the key and the certificate. It is printed
when clients may connect. An interrupt or SIGTERM ends the server when the requests in
hand are done.`,
		Example: `  changefeed serve
  changefeed serve --db data --http --listen 127.0.0.1:9000
  CHANGEFEED_KEY=$(cat key) changefeed serve --db data --listen :8081 --cert tls.pem --key-file tls-key.pem
  changefeed serve --db data --roles roles.json --issuer https://login.microsoftonline.com/TENANT/v2.0 \
    --jwks https://login.microsoftonline.com/TENANT/discovery/v2.0/keys --audience https://cosmos.azure.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.register(cmd)
	return cmd
}

// register adds the flags, and refuses those that contradict each other.
func (o *serveOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.db, "db", "", "`directory` of the store, made if there is none (default in memory)")
	f.StringVar(&o.listen, "listen", defaultListen, "`address` to serve on; port 0 takes a free one")
	f.StringVar(&o.dedicated, "dedicated-gateway", "", "second `address`, where the store is served as by a dedicated gateway")
	f.BoolVar(&o.plain, "http", false, "speak http instead of https")
	f.StringArrayVar(&o.keys, "key", nil, "`key` that may do everything; twice for a secondary one; better given as $"+serveKeyVariable)
	f.StringArrayVar(&o.readOnly, "read-only-key", nil, "`key` that may read; twice for a secondary one; better given as $"+serveReadOnlyVariable)
	f.StringVar(&o.cert, "cert", "", "`file` with a certificate of yours, and what it is signed by")
	f.StringVar(&o.keyFile, "key-file", "", "`file` with the private key of --cert")
	f.BoolVar(&o.lenient, "lenient", false, "serve requests that the service refuses although they could be served")
	f.IntVar(&o.throughput, "ru", 0, "request units a second of containers without a throughput of their own; 0 does not throttle those, -1 throttles none")
	f.DurationVar(&o.retention, "retention", cosmosrest.DefaultRetention, "how long containers without a changeFeedPolicy keep all versions and deletes, 0 is not at all; without the flag a store keeps what it was given before")
	f.BoolVar(&o.images, "previous-images", false, "show the image before a replace in the feed of all versions, as accounts do for which Azure turned that on")
	f.BoolVar(&o.noSync, "no-sync", false, "answer writes before they are on the disk: faster, but a power loss takes the last of them")
	f.StringVar(&o.roles, "roles", "", "JSON `file` with what the principals of Entra tokens may do")
	f.StringVar(&o.jwks, "jwks", "", "`file or address` of the keys that sign Entra tokens, a JSON Web Key Set")
	f.StringVar(&o.issuer, "issuer", "", "`URL` of the issuer of Entra tokens: their claim iss")
	f.StringArrayVar(&o.audiences, "audience", nil, "`URL` that Entra tokens are for: their claim aud; may be given more than once")
	f.BoolVar(&o.insecure, "insecure-aad", false, "accept the emulator's Entra tokens, which carry a key in place of a signature; loopback only")
	for _, name := range []string{"cert", "key-file", "roles"} {
		_ = cmd.MarkFlagFilename(name) // fails only for a flag that is not there
	}
	_ = cmd.MarkFlagDirname("db")
	cmd.MarkFlagsRequiredTogether("cert", "key-file")
	cmd.MarkFlagsRequiredTogether("roles", "jwks", "issuer", "audience")
	cmd.MarkFlagsMutuallyExclusive("http", "cert")
	o.output = output(cmd)
}

// run serves a store. The options are checked before the store is opened, and addresses are
// listened on after, so that a client that connects is answered.
func (o *serveOptions) run(cmd *cobra.Command) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	letHeapGrow(serverGC)
	boundHeap(serverHeap)
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	server, err := o.server(cmd.Context(), log)
	if err != nil {
		return usage.Error{Err: err}
	}
	if _, err := cosmosrest.New(nil, server); err != nil { // wrong options leave no store behind
		return usage.Error{Err: err}
	}
	db, err := docstore.OpenContext(cmd.Context(), o.db, docstore.Options{InMemory: o.db == "", NoSync: o.noSync})
	switch {
	case err != nil && cmd.Context().Err() != nil:
		// That is the end which was asked for, and no failure.
		log.Info("ended while the store was being opened")
		return nil
	case errors.Is(err, docstore.ErrInUse):
		return fmt.Errorf("%w; one process at a time has a store open: end the other one, or if it is changefeed serve, use its address", err)
	case err != nil:
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	// A store that was killed is whole, but an operator should know that it was.
	if found := db.Recovery(); found.Log != "" {
		log.Info(found.String())
	}
	if err := o.retain(cmd.Context(), db, cmd.Flags().Changed("retention")); err != nil {
		return err
	}
	// Only now can each request be answered, so only now may clients connect.
	webs, err := o.webs(cmd.Context())
	if err != nil {
		return err
	}
	defer webs.Close()
	cert, path, drop, err := o.certificate()
	if err != nil {
		return err
	}
	defer drop()
	for _, w := range webs {
		// A dedicated gateway is one by its address: nothing in a request says so.
		server.Dedicated = w.Dedicated
		handler, err := cosmosrest.New(db, server)
		if err != nil {
			return err
		}
		w.Server.Handler = handler
		w.Server.ErrorLog = slog.NewLogLogger(&web.SparseLog{Handler: log.Handler()}, slog.LevelInfo) // a client that does not trust the certificate
		if !o.plain {
			w.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		}
	}
	return webs.Serve(cmd.Context(), func() error { return o.tell(cmd.OutOrStdout(), webs, path) })
}

// retain sets the retention of a store that has none yet, or if the flag was given: a
// restart without the flag must not throw versions away.
func (o *serveOptions) retain(ctx context.Context, db *docstore.DB, given bool) error {
	if _, set := db.Retention(); set && !given {
		return nil
	}
	return db.SetRetention(ctx, o.retention)
}

const wantServeKey = "the base64 of 16 bytes or more" // for messages

// isEmulatorKey reports the well-known key, whichever way it is written in base64.
func isEmulatorKey(key string) bool {
	text, err := base64.StdEncoding.DecodeString(key)
	known, _ := base64.StdEncoding.DecodeString(cosmosrest.EmulatorKey) // is base64
	return err == nil && bytes.Equal(text, known)
}

// check refuses flags that are wrong or unsafe: an address that other machines can reach
// needs a key that not everybody knows.
func (o *serveOptions) check() error {
	o.keys, o.readOnly = orVariable(o.keys, serveKeyVariable), orVariable(o.readOnly, serveReadOnlyVariable)
	switch {
	case slices.Contains(o.keys, ""):
		return usage.Flag("key", "empty", wantServeKey)
	case slices.Contains(o.readOnly, ""):
		return usage.Flag("read-only-key", "empty", wantServeKey)
	}
	// Both addresses lead to the same store, so both have the same rules.
	for _, f := range []struct{ flag, value string }{{"listen", o.listen}, {"dedicated-gateway", o.dedicated}} {
		if f.flag == "dedicated-gateway" && f.value == "" {
			continue
		}
		_, _, err := net.SplitHostPort(f.value)
		switch {
		case err != nil:
			return usage.Flag(f.flag, f.value, "host:port, such as "+defaultListen)
		// IsLoopback takes the rest of a URL, which begins with two slashes. An address
		// without a host, such as :8081, is that of every interface, and so no
		// loopback.
		case place.IsLoopback("//" + f.value):
		// Before the keys are looked at: a token that anybody can make gives everybody
		// the rights of the store, whatever its key is.
		case o.insecure:
			return usage.Flag(f.flag, f.value, "a loopback address such as "+defaultListen+" with --insecure-aad, whose tokens anybody can make")
		case len(o.keys) == 0 || slices.ContainsFunc(slices.Concat(o.keys, o.readOnly), isEmulatorKey):
			return usage.Flag(f.flag, f.value, "a loopback address such as "+defaultListen+", or a --key of your own: anybody knows the emulator's, and other machines can reach this address")
		}
	}
	switch {
	case len(o.keys) > 2:
		return usage.Flag("key", "given "+strconv.Itoa(len(o.keys))+" times", "two at most")
	case len(o.readOnly) > 2:
		return usage.Flag("read-only-key", "given "+strconv.Itoa(len(o.readOnly))+" times", "two at most")
	case o.throughput < cosmosrest.Unlimited:
		return usage.Flag("ru", strconv.Itoa(o.throughput), "0 or more, or -1")
	case o.retention < 0:
		return usage.Flag("retention", o.retention.String(), "a time such as 10m or 168h, or 0")
	}
	return nil
}

// orVariable are the keys of a flag or, without any, the key in the environment.
func orVariable(keys []string, variable string) []string {
	if key := os.Getenv(variable); key != "" && len(keys) == 0 {
		return []string{key}
	}
	return keys
}

// server is the options of the server.
func (o *serveOptions) server(ctx context.Context, log *slog.Logger) (cosmosrest.Options, error) {
	// A server has two keys of each kind, as an account has, so that they can be
	// changed one after the other while clients go on. More were refused in check.
	two := func(keys []string) (string, string) {
		keys = append(slices.Clone(keys), "", "")
		return keys[0], keys[1]
	}
	s := cosmosrest.Options{Lenient: o.lenient, PreviousImages: o.images, Throughput: o.throughput, Logger: log, Ending: ctx}
	s.Keys.Primary, s.Keys.Secondary = two(o.keys)
	s.Keys.PrimaryReadOnly, s.Keys.SecondaryReadOnly = two(o.readOnly)
	s.Keys.Primary = cmp.Or(s.Keys.Primary, cosmosrest.EmulatorKey) // also beside a read-only key
	if o.roles == "" && !o.insecure {
		return s, nil
	}
	s.Tokens = &cosmosrest.Tokens{Issuer: o.issuer, Audiences: o.audiences, JWKS: o.jwks, Insecure: o.insecure}
	if o.roles == "" {
		return s, nil
	}
	text, err := os.ReadFile(o.roles)
	if err != nil {
		return s, fmt.Errorf("read --roles: %w", err)
	}
	if s.Tokens.Roles, err = cosmosrest.ParseRoles(text); err != nil {
		return s, fmt.Errorf("--roles %s: %w", o.roles, err)
	}
	return s, nil
}

// certificate is the server's certificate, and the file that clients must trust if it was
// made here. That of a store in memory is removed at the end.
func (o *serveOptions) certificate() (cert tls.Certificate, path string, drop func(), err error) {
	drop = func() {}
	switch {
	case o.plain:
		return cert, "", drop, nil
	case o.cert != "":
		if cert, err = tls.LoadX509KeyPair(o.cert, o.keyFile); err != nil {
			err = fmt.Errorf("read --cert %s and --key-file %s: %w", o.cert, o.keyFile, err)
		}
		return cert, "", drop, err
	}
	// The certificate stays with the store, so that clients who trust it still do after a restart.
	dir := filepath.Join(o.db, tlsFolder)
	if o.db == "" {
		if dir, err = os.MkdirTemp("", "changefeed-tls-"); err != nil {
			return cert, "", drop, fmt.Errorf("make directory of the certificate: %w", err)
		}
		drop = func() { _ = os.RemoveAll(dir) } // nothing can be done about it
	}
	if cert, path, err = cosmosrest.Certificate(dir); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		drop()
	}
	return cert, path, drop, err
}

// webs listens on the addresses. All share one guard, since they share the process's
// descriptors.
func (o *serveOptions) webs(ctx context.Context) (all web.Sites, err error) {
	guard := cosmosrest.NewGuard(web.Connections())
	for _, at := range []struct {
		flag, address string
		dedicated     bool
	}{{"listen", o.listen, false}, {"dedicated-gateway", o.dedicated, true}} {
		if at.address == "" {
			continue
		}
		if err := all.Listen(ctx, guard, at.address, at.dedicated); err != nil {
			all.Close()
			return nil, fmt.Errorf("--%s is %s: %w: want a free address of this machine, such as 127.0.0.1:0", at.flag, at.address, cmp.Or(errors.Unwrap(err), err))
		}
	}
	return all, nil
}
