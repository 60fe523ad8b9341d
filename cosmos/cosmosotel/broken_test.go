package cosmosotel

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// An answer that breaks off is an error of its span, whatever its status was. An answer without a body ends its span at
// once.
func TestABrokenAnswerIsAnErrorOfItsSpan(t *testing.T) {
	for _, tt := range []struct {
		body        io.ReadCloser
		code        codes.Code
		description string
	}{
		{io.NopCloser(strings.NewReader("whole")), codes.Unset, ""},
		{io.NopCloser(iotest.ErrReader(errors.New("broken pipe"))), codes.Error, "broken pipe"},
		{io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), codes.Error, "unexpected EOF"},
		{nil, codes.Unset, ""},
	} {
		spans := tracetest.NewSpanRecorder()
		transport := Transport(sender(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: tt.body}, nil
		}), Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))})
		answer, err := transport.Do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://h/dbs/d", nil))
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body != nil {
			_, _ = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
		}
		ended := spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%d spans, want one", len(ended))
		}
		if is := ended[0].Status(); is.Code != tt.code || is.Description != tt.description {
			t.Errorf("the span is %v, want %v %q", is, tt.code, tt.description)
		}
	}
}
