package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/broker"
	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/web"
)

// Help about subjects that concern several commands.

// environment explains the variables in changefeed help environment. TestEachVariableIsExplained compares the variables
// with the source.
var environment = []struct {
	heading string
	name    string
	meaning string
}{
	{
		"Accounts",
		place.EndpointVariable,
		"URL of the account of cosmos addresses, if --endpoint and --context are not set.",
	},
	{
		"",
		place.KeyVariable,
		"Key of the account: of $COSMOS_ENDPOINT or $COSMOS_CONNECTION_STRING, if set, and otherwise of the " +
			"account that the command names, unless a context names it. Default: Microsoft Entra ID or, on a loopback address, the emulator's " +
			"key.",
	},
	{
		"",
		place.ConnectionVariable,
		"Endpoint and key in one text, if --connection-string and --context are not set.",
	},
	{
		"",
		web.KeyVariable,
		"serve: the read-write key of the server. Default: the emulator's key. Other commands: the key of an account " +
			"on a loopback address, or at the endpoint of --endpoint, $COSMOS_ENDPOINT or a context, if nothing else " +
			"gives a key. This key is sent to no other endpoint.",
	},
	{"", web.ReadOnlyVariable, "serve: the read-only key of the server. Default: none."},
	{
		"Contexts",
		contexts.ContextVariable,
		"Name of the context, if --context is not set. Default: the current context.",
	},
	{
		"",
		contexts.FileVariable,
		"File of contexts. Default: changefeed/config.json in your directory of settings, which is $XDG_CONFIG_HOME, " +
			"or ~/.config on Linux.",
	},
	{
		"Dashboard",
		ui.KeyVariable,
		"Commands with --ui: the key that the dashboard wants. Default: none, and then --ui wants a loopback address.",
	},
	{
		"Brokers",
		broker.SecretVariable,
		"relay, and run with a URL: the key that signs requests to a webhook. Default: they are not signed.",
	},
	{
		"",
		"SERVICEBUS_CONNECTION_STRING",
		"relay, in a binary with -tags brokers: the connection string of Service Bus. Default: Microsoft Entra ID.",
	},
	{
		"Output",
		"NO_COLOR",
		"Any value turns colours off.",
	},
	{"", "TERM", "The value dumb turns colours off, and progress is written in new lines."},
	{
		"Memory",
		"GOGC",
		"How far the heap grows between two collections, in percent. Default: 400, or 200 in serve.",
	},
	{"", "GOMEMLIMIT", "serve: the limit of the heap. Default: a part of --memory."},
}

// libraryVariables are variables read by libraries and by Go itself.
const libraryVariables = `Libraries
  SSL_CERT_FILE, SSL_CERT_DIR
      Certificates that are trusted, instead of the system's.
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
      Proxies on the way to an account. A loopback address needs none.
  AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_TOKEN_CREDENTIALS and others
      Identity of Microsoft Entra ID, as in every program with the Azure SDK.

Programs that run starts find CHANGEFEED_LEASE and others: see changefeed help run.`

// environmentTopic is changefeed help environment.
func environmentTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("These environment variables are read. A flag comes before its variable; changefeed help " +
		"context says when a context does. An empty variable is like none.\n\n")
	for i, v := range environment {
		if v.heading != "" {
			if i > 0 {
				text.WriteString("\n")
			}
			text.WriteString(v.heading + "\n")
		}
		text.WriteString("  " + v.name + "\n      " + terminal.Wrap(v.meaning, 6, terminal.Narrow-1, 6) + "\n")
	}
	text.WriteString("\n" + libraryVariables)
	return &cobra.Command{
		Use: "environment", Short: "Which environment variables are read", Long: text.String(),
	}
}
