package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of a command is the same for the same program wherever it is, and another for another content or argument.
func TestACommandIsNamedByItsContent(t *testing.T) {
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, same := write("mail.sh", "#!/bin/sh\ncat"), write("mail.sh", "#!/bin/sh\ncat")
	other := write("mail.sh", "#!/bin/sh\ncat >/dev/null")
	base := commandVariant([]string{one, "-q"})
	if !strings.HasPrefix(base, "mail.sh ") || strings.Contains(base, "-q") {
		t.Errorf("the name is %q, want the file without its directory, and without arguments", base)
	}
	if got := commandVariant([]string{same, "-q"}); got != base {
		t.Errorf("a copy of the program is %q, want %q", got, base)
	}
	for why, command := range map[string][]string{
		"another content":  {other, "-q"},
		"another argument": {one, "-v"},
		"another number":   {one, "-q", ""},
		"a missing file":   {filepath.Join(t.TempDir(), "mail.sh"), "-q"},
	} {
		if got := commandVariant(command); got == base || !strings.HasPrefix(got, "mail.sh ") {
			t.Errorf("%s: %q, want another hash than %q", why, got, base)
		}
	}
	by := commandVariant([]string{"sh", "-e", one})
	if !strings.HasPrefix(by, "mail.sh ") {
		t.Errorf("by an interpreter: %q, want the script", by)
	}
	if err := os.WriteFile(one, []byte("#!/bin/sh\nexit 1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := commandVariant([]string{"sh", "-e", one}); got == by {
		t.Errorf("by an interpreter: another script has the name %q too", got)
	}
	if got := commandVariant([]string{"sh", "-c", "exit 1"}); !strings.HasPrefix(got, "sh ") {
		t.Errorf("a command in an argument is %q", got)
	}
}

// The name of a broker has no secret.
func TestTheNameOfABrokerHasNoSecret(t *testing.T) {
	for to, want := range map[string]string{
		"nats://user:secret@host:4222":                 "event to nats://host:4222",
		"https://host/secret?sig=secret":               "event to https://host 2bb80d53",
		"embedded:nats":                                "event to embedded:nats",
		"servicebus:orders?connection=secret":          "event to servicebus:orders",
		"nats://host:4222?" + strings.Repeat("x", 500): "event to nats://host:4222",
	} {
		if got := brokerVariant(to, "event"); got != want {
			t.Errorf("%s: got %q, want %q", to, got, want)
		}
	}
	if brokerVariant("https://host/a", "event") == brokerVariant("https://host/b", "event") {
		t.Error("two paths have one name")
	}
}

// Webhooks of different addresses are different handlers, and a name tells no secret of an address.
func TestAWebhookIsNamedByItsAddress(t *testing.T) {
	one := handlerVariant([]string{"https://ada:pass@shop.example/hooks/T0K3N?code=secret"})
	if !strings.HasPrefix(one, "webhook to https://shop.example ") {
		t.Errorf("the name is %s", one)
	}
	for _, secret := range []string{"ada", "pass", "T0K3N", "code"} {
		if strings.Contains(one, secret) {
			t.Errorf("the name %s tells %s", one, secret)
		}
	}
	for _, other := range []string{"https://shop.example/hooks/other", "https://other.example/hooks/T0K3N", "./hooks"} {
		if handlerVariant([]string{other}) == one {
			t.Errorf("%s has the same name", other)
		}
	}
}
