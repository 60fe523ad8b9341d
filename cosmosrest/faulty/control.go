package faulty

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ControlPath is the path at which faults are ordered over HTTP.
const ControlPath = "/_faults"

// maxOrder is the largest number of bytes of an order.
const maxOrder = 64 << 10

// order is a fault as JSON. Durations are seconds.
type order struct {
	Container  string  `json:"container,omitempty"`
	Method     string  `json:"method,omitempty"`
	Status     int     `json:"status,omitempty"`
	SubStatus  int     `json:"sub_status,omitempty"`
	RetryAfter float64 `json:"retry_after,omitempty"`
	Lose       bool    `json:"lose,omitempty"`
	Delay      float64 `json:"delay,omitempty"`
	Times      int     `json:"times,omitempty"`
}

// Control returns a handler that is the injector and, at [ControlPath], takes orders from senders with a key, in the
// header Authorization: Bearer KEY.
//
//	POST    orders a fault: {"container":"shop/orders","status":429,"sub_status":3200,"retry_after":0.5,"times":3}
//	        or {"lose":true} or {"delay":2}; durations are seconds. The answer is 204, or 400 with the reason
//	GET     returns the faults that requests have not met yet, a JSON array
//	DELETE  removes all faults
func (i *Injector) Control(key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != ControlPath {
			i.ServeHTTP(w, r)
			return
		}
		if !isKey(r.Header.Get("Authorization"), key) {
			http.Error(w, "want the header Authorization: Bearer KEY, with the key of the account",
				http.StatusUnauthorized)
			return
		}
		switch r.Method {
		case http.MethodPost:
			i.takeOrder(w, r)
		case http.MethodGet:
			i.listFaults(w)
		case http.MethodDelete:
			i.Clear()
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", "POST, GET, DELETE")
			http.Error(w, fmt.Sprintf("method is %s: want POST, GET or DELETE", r.Method), http.StatusMethodNotAllowed)
		}
	})
}

// isKey compares a header with a key in a time that says nothing about the key.
func isKey(header, key string) bool {
	given, want := sha256.Sum256([]byte(header)), sha256.Sum256([]byte("Bearer "+key))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// takeOrder adds the fault of a request.
func (i *Injector) takeOrder(w http.ResponseWriter, r *http.Request) {
	d := json.NewDecoder(io.LimitReader(r.Body, maxOrder))
	d.DisallowUnknownFields()
	var o order
	err := d.Decode(&o)
	if err == nil {
		err = i.Add(Fault{
			Container: o.Container, Method: o.Method, Status: o.Status, SubStatus: o.SubStatus,
			RetryAfter: seconds(o.RetryAfter), Lose: o.Lose, Delay: seconds(o.Delay), Times: o.Times,
		})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// seconds returns a duration. One that is too long for the type is the longest, so that the check refuses it.
func seconds(n float64) time.Duration {
	if n > maxDelay.Seconds()*1e6 {
		return 1<<63 - 1
	}
	return time.Duration(n * float64(time.Second))
}

// listFaults writes the faults that are left.
func (i *Injector) listFaults(w http.ResponseWriter) {
	all := []order{}
	for _, f := range i.Pending() {
		all = append(all, order{
			f.Container, f.Method, f.Status, f.SubStatus, f.RetryAfter.Seconds(), f.Lose, f.Delay.Seconds(), f.Times,
		})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // an error means that the client has gone
}
