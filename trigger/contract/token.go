package contract

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// KindToken is the kind of a request for a token: the host asks, and the program answers with the same kind. So a
// program lends an identity to the processor, and no secret is in an argument, a file or the environment.
const KindToken Kind = "token"

// A Token is a bearer token of Microsoft Entra ID.
type Token struct {
	Text    string
	Expires time.Time
}

// tokenRequest is the request for a token.
type tokenRequest struct {
	Type  Kind   `json:"type"`
	ID    int64  `json:"id"`
	Scope string `json:"scope"`
}

// tokenAnswer is a program's answer.
type tokenAnswer struct {
	token Token
	err   error
}

// ErrNoTokens: the hello of the program does not offer tokens.
var ErrNoTokens = errors.New("the program gives no tokens: want the member tokens in its hello")

// OffersTokens reports whether the hello of the program offers tokens.
func (h *Host) OffersTokens() bool { return h.hello.Tokens }

// Token asks the program for a token of a scope.
func (h *Host) Token(ctx context.Context, scope string) (Token, error) {
	if !h.hello.Tokens {
		return Token{}, ErrNoTokens
	}
	said := make(chan tokenAnswer, 1)
	h.mu.Lock()
	if h.tokens == nil {
		h.tokens = map[int64]chan tokenAnswer{}
	}
	h.lastToken++
	id := h.lastToken
	h.tokens[id] = said
	h.mu.Unlock()
	h.lines.sendLine(encode(tokenRequest{KindToken, id, scope}), nil)
	select {
	case a := <-said:
		return a.token, a.err
	case <-h.done:
		return Token{}, fmt.Errorf("wait for a token of the program: %w", h.Err())
	case <-ctx.Done():
		return Token{}, fmt.Errorf("wait for a token of the program: %w", context.Cause(ctx))
	}
}

// takeToken takes the answer to a request for a token. A late answer is none's.
func (h *Host) takeToken(line []byte, m *toHost) error {
	h.mu.Lock()
	said, last := h.tokens[m.ID], h.lastToken
	delete(h.tokens, m.ID)
	h.mu.Unlock()
	switch {
	case m.ID > last:
		return breach(line, "the processor has not asked for the token %d", m.ID)
	case said == nil:
		return breach(line, "the token %d has an answer already", m.ID)
	case m.Error != "":
		said <- tokenAnswer{err: fmt.Errorf("the program gives no token: %w", errorText(m.Error))}
	case m.Token == "" || m.Expires == nil:
		return breach(line, "token or expires is missing: want both, or error")
	default:
		said <- tokenAnswer{token: Token{m.Token, *m.Expires}}
	}
	return nil
}
