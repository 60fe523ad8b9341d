package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Who may look, and the rules for browsers.

// policy allows the page only its own scripts, styles and requests. Nobody may frame the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// guardRequests lets requests pass that may look.
func (d *Dashboard) guardRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      policy,
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(name, value)
		}
		if r.ContentLength != 0 && isRead(r) { // nobody reads the body, and the answer does not wait for the body
			w.Header().Set("Connection", "close")
		}
		switch {
		case d.o.Key == "" && !isHost(r.Host):
			refuse(w, http.StatusMisdirectedRequest, "the Host header is "+r.Host+": want localhost or an IP address, "+
				"or a dashboard with a key")
		case isForeign(r):
			refuse(w, http.StatusForbidden, "the request comes from a page of another site")
		case !d.o.Write && !isRead(r):
			w.Header().Set("Allow", "GET, HEAD")
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusMethodNotAllowed, "the method is "+r.Method+": want GET: the dashboard only reads")
		case !d.hasKey(r):
			w.Header().Set("WWW-Authenticate", `Basic realm="changefeed", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "want the key of the dashboard, as a bearer token or as a password")
		case !isRead(r) && !isAsked(r):
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusUnsupportedMediaType, "the Content-Type is "+r.Header.Get("Content-Type")+
				": want application/json or application/x-ndjson, which no form of another site can send")
		default:
			if !isRead(r) {
				r.Body = &patientBody{r.Body, http.NewResponseController(w)}
			}
			next.ServeHTTP(w, r)
		}
	})
}

// readTimeout is how long the dashboard waits for the next bytes of a body.
const readTimeout = 30 * time.Second

// patientBody is a body that may come for long, but not with long pauses.
type patientBody struct {
	io.ReadCloser
	at *http.ResponseController
}

// Read implements [io.Reader]. After the end of the body the connection may be still for as long as the answer takes.
// If the body breaks off, the server shall not wait for the rest either.
func (b *patientBody) Read(p []byte) (int, error) {
	_ = b.at.SetReadDeadline(time.Now().Add(readTimeout)) // a test's recorder has none
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.at.SetReadDeadline(time.Time{})
	}
	return n, err
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// isAsked reports whether a page of another site would have to ask the dashboard before it sends such a request, which
// the dashboard never allows. A browser sends forms, plain texts and requests without a type unasked.
func isAsked(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return kind == "application/json" || kind == "application/x-ndjson"
}

// isHost reports whether a request names the dashboard by an honest name. A page of another host can point the name of
// that host to the dashboard (DNS rebinding), but the browser then sends that name. Such a page does not have the key
// either.
func isHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isForeign reports whether a browser sends a request for a page of another site. To follow a link to the page is no
// harm.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		origin := r.Header.Get("Origin")
		return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
	}
	return r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// hasKey reports whether a request has the key, or needs none: a health probe has no secret.
func (d *Dashboard) hasKey(r *http.Request) bool {
	if d.o.Key == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return true
	}
	_, given, _ := r.BasicAuth()
	if kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(kind, "Bearer") {
		given = strings.TrimSpace(token)
	}
	want, got := sha256.Sum256([]byte(d.o.Key)), sha256.Sum256([]byte(given)) // always of the same length
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}

// answer answers a request with JSON.
func answer(w http.ResponseWriter, status int, body any) { write(w, status, jsonOf(body)) }

// write answers a request with a text of JSON.
func write(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	to := http.NewResponseController(w)
	for part := range slices.Chunk(text, 64<<10) {
		_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
		if _, err := w.Write(part); err != nil {
			return // a client that is gone, or takes nothing, needs no answer
		}
	}
	_, _ = w.Write([]byte("\n")) // the text is also that of other answers, so nothing is appended to it
}

// jsonOf is a value as JSON.
func jsonOf(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // a number that is none, which would be a mistake of ours
		return []byte(`{"error":"the answer is no JSON"}`)
	}
	return text
}
