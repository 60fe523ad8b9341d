package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/memory"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// The command serve. cmd/changefeed/internal/web decides what is served and where, and which combinations of flags
// are unsafe.

// serveOptions are the flags of serve.
type serveOptions struct {
	web.Options
	memory arg.Size
	report *report.Report
}

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

// register adds the flags, and makes contradictory flags exclude each other.
func (o *serveOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Dir, "db", "", "`directory` of the store, made if there is none (default in memory)")
	f.StringVar(&o.Listen, "listen", web.DefaultListen, "`address` to serve on; port 0 takes a free one")
	f.StringVar(&o.Dedicated, "dedicated-gateway", "",
		"second `address`, where the store is served as by a dedicated gateway")
	f.BoolVar(&o.Plain, "http", false, "speak http instead of https")
	f.StringArrayVar(&o.Keys, "key", nil,
		"`key` that may do everything; twice for a secondary one; better given as $"+web.KeyVariable)
	f.StringArrayVar(&o.ReadOnly, "read-only-key", nil,
		"`key` that may read; twice for a secondary one; better given as $"+web.ReadOnlyVariable)
	f.StringArrayVar(&o.Hosts, "allow-host", nil,
		"`name` by which clients call a server with the emulator's key, besides localhost; may be given more than once")
	f.StringVar(&o.Cert, "cert", "", "`file` with a certificate of yours, and what it is signed by")
	f.StringVar(&o.KeyFile, "key-file", "", "`file` with the private key of --cert")
	f.StringVar(&o.Level, "consistency", "Session",
		"`level` that clients are told: Strong, BoundedStaleness, Session, ConsistentPrefix or Eventual; each is served as Strong")
	f.BoolVar(&o.Lenient, "lenient", false, "serve requests that the service refuses although they could be served")
	f.IntVar(&o.Throughput, "ru", 0,
		"request units a second of containers without a throughput of their own; 0 does not throttle those, -1 "+
			"throttles none")
	f.DurationVar(&o.Retention, "retention", cosmosrest.DefaultRetention,
		"how long containers without a changeFeedPolicy keep all versions and deletes, 0 is not at all; without the "+
			"flag a store keeps what it was given before")
	f.StringVar(&o.Images, "previous-images", "deletes",
		"`changes` before which the feed of all versions has the image: deletes, as in the emulator; all, as in accounts for which Azure turned that on; or none, as in other accounts")
	f.BoolVar(&o.NoSync, "no-sync", false,
		"answer writes before they are on the disk: faster, but a power loss takes the last of them")
	o.memory.Value = memory.Default
	f.Var(&o.memory, "memory",
		"how much memory the server takes under an ordinary load; large queries and answers take more while they "+
			"run, and without --db the documents do. A larger one is a larger cache. $GOMEMLIMIT goes before its "+
			"part for the heap")
	f.StringVar(&o.Roles, "roles", "", "JSON `file` with what the principals of Entra tokens may do")
	f.StringVar(&o.JWKS, "jwks", "", "`file or address` of the keys that sign Entra tokens, a JSON Web Key Set")
	f.StringVar(&o.Issuer, "issuer", "", "`URL` of the issuer of Entra tokens: their claim iss")
	f.StringArrayVar(&o.Audiences, "audience", nil,
		"`URL` that Entra tokens are for: their claim aud; may be given more than once")
	f.BoolVar(&o.Insecure, "insecure-aad", false,
		"accept the emulator's Entra tokens, which carry a key in place of a signature; loopback only")
	for _, name := range []string{"cert", "key-file", "roles"} {
		_ = cmd.MarkFlagFilename(name) // fails only for an unknown flag
	}
	_ = cmd.MarkFlagDirname("db")
	cmd.MarkFlagsRequiredTogether("cert", "key-file")
	cmd.MarkFlagsRequiredTogether("roles", "jwks", "issuer", "audience")
	cmd.MarkFlagsMutuallyExclusive("http", "cert")
	o.report = output(cmd)
}

// run serves a store.
func (o *serveOptions) run(cmd *cobra.Command) error {
	if err := refuseEmpty(cmd); err != nil {
		return err
	}
	o.Kept = !cmd.Flags().Changed("retention")
	if err := o.Check(); err != nil {
		return err
	}
	if o.memory.Value < memory.Least {
		return usage.Flag("memory", o.memory.String(), (&arg.Size{Value: memory.Least}).String()+" or more")
	}
	defer o.boundMemory()()
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return o.Serve(cmd.Context(), func(e web.Endpoints) error {
		return o.report.Object(e, e.Write)
	})
}

// refuseEmpty refuses flags that were given as empty, as by a variable that is not set: the server would be another one
// than its user wants.
func refuseEmpty(cmd *cobra.Command) error {
	for _, f := range []struct{ name, want string }{
		{"db", "a directory, or leave --db out for a store in memory"},
		{"cert", "a file, or leave --cert and --key-file out for a certificate of the server's own"},
		{"dedicated-gateway", "an address, or leave --dedicated-gateway out"},
		{"roles", "a file, or leave --roles out to serve keys alone"},
	} {
		if flag := cmd.Flags().Lookup(f.name); flag.Changed && flag.Value.String() == "" {
			return usage.Flag(f.name, "empty", f.want)
		}
	}
	return nil
}

// boundMemory divides the memory between the store's engine and Go's heap, and returns the end of that. A limit in
// $GOMEMLIMIT goes before the part of the heap, and $GOGC before our percentage.
func (o *serveOptions) boundMemory() (end func()) {
	letHeapGrow(serverGC)
	shares := memory.Of(o.memory.Value)
	o.Cache = shares.Engine
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	limit := shares.Heap
	if !docstore.OffHeap {
		limit += shares.Engine
	}
	return memory.Keep(limit)
}
