package servermetrics

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/changefeed/cosmosrest"
)

// kind is what requests of one series have in common.
type kind struct {
	operation, method, scheme string
	status                    int
}

// series are the attributes of a kind of requests, made once, so that a request costs no allocation.
type series struct {
	answered, charged []metric.RecordOption
	refused           []metric.AddOption // nil if the requests were not refused
}

// seriesMap has the series of the kinds of requests that there were. Each member of a kind has a few values only, so
// the map stays small.
type seriesMap struct {
	mu  sync.Mutex                       // of changes
	all atomic.Pointer[map[kind]*series] // replaced as a whole; nil at first
}

// of returns the series of a request.
func (m *seriesMap) of(r *cosmosrest.RequestDone) *series {
	k := kind{r.Operation, methodOf(r.Method), r.Scheme, r.Status}
	if all := m.all.Load(); all != nil {
		if s := (*all)[k]; s != nil {
			return s
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[kind]*series{}
	if old := m.all.Load(); old != nil {
		all = maps.Clone(*old)
	}
	s := newSeries(k)
	all[k] = s
	m.all.Store(&all)
	return s
}

// refusals are the status codes of requests that the server has refused because of their sender, the load or the store.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable,
}

func newSeries(k kind) *series {
	operation, status := semconv.DBOperationName(k.operation), semconv.HTTPResponseStatusCode(k.status)
	of := []attribute.KeyValue{
		operation, status, semconv.HTTPRequestMethodKey.String(k.method), semconv.URLScheme(k.scheme),
	}
	if k.status >= http.StatusInternalServerError {
		of = append(of, semconv.ErrorTypeKey.String(strconv.Itoa(k.status)))
	}
	s := &series{
		answered: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(of...))},
		charged:  []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(operation))},
	}
	if slices.Contains(refusals, k.status) {
		s.refused = refusalOf(k.status)
	}
	return s
}

// refusalOf are the attributes of refused requests.
func refusalOf(status int) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(semconv.HTTPResponseStatusCode(status)))}
}

// methodOf returns a method of HTTP, or the word of the conventions for others: a client may send any text.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead,
		http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	}
	return "_OTHER"
}
