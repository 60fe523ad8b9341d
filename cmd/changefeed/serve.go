package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/memory"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// The command serve. cmd/changefeed/internal/web decides the addresses and their handlers, and refuses unsafe
// combinations of flags.

// serveOptions are the flags of serve.
type serveOptions struct {
	web.Options
	memory arg.Size
	report *report.Report
	ui     uiOptions
}

// serveCommand is the command serve.
func serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: groupStore,
		Short:   "Serve a store by the protocol of Azure Cosmos DB",
		Long: `Unmodified SDKs work with the server. Without --db the store is in memory, and gone when the server ends.

The server makes a certificate for localhost, keeps the certificate in DIR/tls until shortly before expiry, and says how
clients trust it. The default key is the emulator's, which is public. So if other machines can reach an address,
--account-key or $CHANGEFEED_KEY is needed: the base64 of 16 bytes or more, such as openssl rand -base64 64 prints.

With --roles, Entra tokens are accepted too. docs/server.md describes all flags.`,
		Example: `  changefeed serve
  changefeed serve --db data --http --listen 127.0.0.1:9000
  CHANGEFEED_KEY=$(cat key) changefeed serve --db data --listen :8081 \
    --cert tls.pem --cert-key tls-key.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.register(cmd)
	untilStdinFlag(cmd)
	return cmd
}

// register adds the flags, and makes contradictory flags exclude each other.
func (o *serveOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Dir, "db", "", "`directory` of the store, made if missing (default in memory)")
	f.StringVar(&o.Listen, "listen", web.DefaultListen, "`host:port` to serve on; port 0 takes a free port")
	f.StringVar(&o.Dedicated, "dedicated-gateway", "",
		"second `host:port`, served as by a dedicated gateway")
	f.BoolVar(&o.Plain, "http", false, "speak http instead of https")
	f.StringArrayVar(&o.Keys, "account-key", nil,
		"`key` for everything; twice for a secondary key (default $"+web.KeyVariable+")")
	f.StringArrayVar(&o.ReadOnly, "read-only-key", nil,
		"`key` for reading; twice for a secondary key (default $"+web.ReadOnlyVariable+")")
	f.StringArrayVar(&o.Hosts, "allow-host", nil,
		"`name` by which clients call a server with the emulator's key; repeatable")
	f.StringVar(&o.Cert, "cert", "", "`file` with your certificate and the issuers")
	f.StringVar(&o.KeyFile, "cert-key", "", "`file` with the private key of --cert")
	f.StringVar(&o.Level, "consistency", "Session",
		"`level` that clients are told: Strong, BoundedStaleness, Session, ConsistentPrefix or Eventual; "+
			"each is served as Strong")
	f.BoolVar(&o.Faults, "faults", false, "fail on order, for tests: docs/testing.md")
	f.BoolVar(&o.Lenient, "lenient", false, "serve some requests that the service refuses")
	f.IntVar(&o.Throughput, "ru", 0,
		"request units a second of containers without a throughput; 0 throttles none of these, -1 no container")
	f.DurationVar(&o.Retention, "retention", cosmosrest.DefaultRetention,
		"how long containers without a policy keep all versions; 0 is not at all")
	f.StringVar(&o.Images, "previous-images", "deletes",
		"`changes` with a previous image in the feed of all versions: deletes, all or none")
	f.BoolVar(&o.NoSync, "no-sync", false,
		"answer writes before they are on disk: a power loss takes the last")
	o.memory.Value = memory.Default
	f.Var(&o.memory, "memory",
		"memory under an ordinary load; more is a larger cache")
	f.StringVar(&o.Roles, "roles", "", "JSON `file` with the rights of Entra principals")
	f.StringVar(&o.JWKS, "jwks", "", "`file or URL` of the keys that sign Entra tokens")
	f.StringVar(&o.Issuer, "issuer", "", "`URL` of the issuer of Entra tokens (claim iss)")
	f.StringArrayVar(&o.Audiences, "audience", nil,
		"`URL` that Entra tokens are for (claim aud); repeatable")
	f.BoolVar(&o.Insecure, "insecure-aad", false,
		"accept the emulator's unsigned Entra tokens; loopback only")
	cmd.MarkFlagsRequiredTogether("cert", "cert-key")
	cmd.MarkFlagsRequiredTogether("roles", "jwks", "issuer", "audience")
	cmd.MarkFlagsMutuallyExclusive("http", "cert")
	o.ui.register(cmd)
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
	store := ui.StoreOf(o.Dir)
	return o.ui.during(cmd, o.report, store.Options(), func(on *ui.UI) error {
		m, err := on.Server()
		if err != nil {
			return err
		}
		if m != nil {
			o.RequestDone = m.RequestDone
			o.Opened = func(db *docstore.DB) (closing func(), err error) { return store.Show(db, m) }
		}
		return o.Serve(cmd.Context(), func(e web.Endpoints) error {
			store.ServedAt(e.Endpoint)
			return o.report.Object(e, e.Write)
		})
	})
}

// refuseEmpty refuses empty flags, as from a variable that is not set: the server would not be as the user wants.
func refuseEmpty(cmd *cobra.Command) error {
	for _, f := range []struct{ name, want string }{
		{"db", "a directory, or leave --db out for a store in memory"},
		{"cert", "a file, or leave --cert and --cert-key out for a certificate of the server's own"},
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
