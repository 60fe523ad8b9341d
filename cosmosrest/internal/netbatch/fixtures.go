package netbatch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// Bodies with their expected meaning: recorded from the SDK, written by its own library, or damaged on purpose. Both
// the server's reader and this package's writer are compared with them, so the two cannot make the same mistake
// unnoticed.

// Case is a body that the SDK or its HybridRow library has written, or a damaged body.
type Case struct {
	Name    string
	Kind    string // request, response or bad-request
	Body    []byte `json:"base64"`
	Meaning struct {
		Source     string // "recorded" means a request of the SDK itself
		Headers    map[string]string
		HTTPStatus int
		Operations []CaseOperation
		Results    []CaseResult
		Error      string // the fault of a damaged body
	}
}

// CaseOperation is the expected content of an operation.
type CaseOperation struct {
	Operation                string // by name
	OperationType            int32
	ResourceType             *int32
	PartitionKey, ID         *string
	Body                     *string
	BodyHex                  *string
	BodyLength               int // of a long body, which is given by length and hash
	BodySha256               string
	EffectivePartitionKeyHex *string
	BinaryIDHex              *string
	IndexingDirective        *string
	IfMatch, IfNoneMatch     *string
	TimeToLiveInSeconds      *int32
	MinimalReturnPreference  *bool
}

// CaseResult is the expected content of a result.
type CaseResult struct {
	StatusCode             int32
	SubStatusCode          *int32
	ETag                   *string
	Body                   *string
	BodyLength             int
	BodySha256             string
	RetryAfterMilliseconds *uint32
	RequestCharge          *float64
}

// Cases reads the cases of a kind from a file.
func Cases(t testing.TB, file, kind string) (found []Case) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []Case
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Kind == kind {
			found = append(found, c)
		}
	}
	return found
}

// SameBody reports whether a body is that of a case. A case may give a long body by its length and hash.
func SameBody(got []byte, text *string, length int, sum string) bool {
	if length > 0 {
		have := sha256.Sum256(got)
		return len(got) == length && hex.EncodeToString(have[:]) == sum
	}
	return (got == nil) == (text == nil) && (text == nil || string(got) == *text)
}
