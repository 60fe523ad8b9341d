package servicebuspub_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed/outbox/servicebuspub"
)

// pages are what the management of a namespace answers, by path; a number is a status.
type pages map[string]string

// Do answers a request.
func (p pages) Do(r *http.Request) (*http.Response, error) {
	body, ok := p[r.URL.Path]
	if !ok {
		body = `<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Publicly Listed Services</title></feed>`
	}
	if skip := r.URL.Query().Get("$skip"); skip != "" && skip != "0" {
		body = subscriptions() // no more
	}
	status := http.StatusOK
	if _, err := fmt.Sscan(body, &status); err == nil {
		body = ""
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		Request: r,
	}, nil
}

func queue(deduplicates, sessions bool) string {
	return entry("QueueDescription", deduplicates, sessions)
}

func entry(description string, deduplicates, sessions bool) string {
	return fmt.Sprintf(`<entry xmlns="http://www.w3.org/2005/Atom"><title type="text">%[1]s</title><content type="application/xml">`+
		`<%[1]s xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><RequiresDuplicateDetection>%t</RequiresDuplicateDetection>`+
		`<RequiresSession>%t</RequiresSession></%[1]s></content></entry>`, description, deduplicates, sessions)
}

func topic(deduplicates bool) string {
	return strings.Replace(entry("TopicDescription", deduplicates, false), "<RequiresSession>false</RequiresSession>",
		"", 1)
}

func subscriptions(sessions ...bool) string {
	var feed strings.Builder
	feed.WriteString(`<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Subscriptions</title>`)
	for _, has := range sessions {
		feed.WriteString(entry("SubscriptionDescription", false, has))
	}
	return feed.String() + "</feed>"
}

// settings are options with which a publisher reads its settings from these pages.
func settings(p pages) (o servicebuspub.Options) {
	o.Admin.Transport = p
	o.Admin.Retry = policy.RetryOptions{MaxRetries: -1}
	return o
}

func TestAnEntityThatIsNotFitIsRefused(t *testing.T) {
	const path = "/contacts/Subscriptions"
	for name, c := range map[string]struct {
		pages pages
		want  []error // of the refusal; none is a fit entity
		warn  int
	}{
		"fit queue": {pages{"/contacts": queue(true, true)}, nil, 0},
		"queue without duplicate detection": {
			pages{"/contacts": queue(false, true)},
			[]error{servicebuspub.ErrNoDuplicateDetection},
			0,
		},
		"queue without sessions": {
			pages{"/contacts": queue(true, false)},
			[]error{servicebuspub.ErrNoSessions},
			0,
		},
		"queue without both": {
			pages{"/contacts": queue(false, false)},
			[]error{servicebuspub.ErrNoDuplicateDetection, servicebuspub.ErrNoSessions},
			0,
		},
		"fit topic": {
			pages{"/contacts": topic(true), path: subscriptions(true, true)},
			nil, 0,
		},
		"topic without subscriptions": {pages{"/contacts": topic(true), path: subscriptions()}, nil, 0},
		"topic without duplicate detection": {
			pages{"/contacts": topic(false), path: subscriptions(true)},
			[]error{servicebuspub.ErrNoDuplicateDetection},
			0,
		},
		"topic with a subscription of each kind": {
			pages{"/contacts": topic(true), path: subscriptions(false, true)},
			nil, 1,
		},
		"topic of which no subscription is fit": {
			pages{"/contacts": topic(true), path: subscriptions(false, false)},
			[]error{servicebuspub.ErrNoSessions},
			0,
		},
		"nothing":                    {pages{}, []error{servicebuspub.ErrNotFound}, 0},
		"no right to read it":        {pages{"/contacts": "401"}, nil, 1},
		"no right to read it either": {pages{"/contacts": "403"}, nil, 1},
	} {
		for _, unfit := range []bool{false, true} {
			warned := 0
			o := settings(c.pages)
			o.Unfit, o.Warn = unfit, func(error) { warned++ }
			p, err := servicebuspub.OpenConnectionString(t.Context(), connection, entity, o)
			if err == nil {
				p.Close()
			}
			refused, wantWarn := c.want, c.warn
			if unfit && name != "nothing" && refused != nil {
				refused, wantWarn = nil, 1
			}
			if (err != nil) != (refused != nil) || warned != wantWarn {
				t.Errorf("%s, Unfit %t: %v, %d warnings", name, unfit, err, warned)
			}
			for _, want := range refused {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
		}
	}
}

func TestAManagementThatIsAwayRefuses(t *testing.T) {
	if p, err := servicebuspub.OpenConnectionString(t.Context(), connection, entity,
		settings(pages{"/contacts": "503"})); err == nil {
		p.Close()
		t.Error("a publisher whose entity could not be checked is opened")
	}
}

func TestAConnectionStringThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"", "Endpoint=", "nonsense"} {
		if p, err := servicebuspub.OpenConnectionString(t.Context(), text, entity,
			servicebuspub.Options{}); err == nil {
			p.Close()
			t.Errorf("%q is taken", text)
		}
	}
}
