package netbatch

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
)

const recorded = "../hybridrow/testdata/hybridrow.json"

// What is written here is what the SDK has written.
func TestRequestsAreThoseOfTheSDK(t *testing.T) {
	written := 0
	for _, c := range Cases(t, recorded, "request") {
		if c.Meaning.Source != "recorded" || c.Name == "varuint-lengths" { // has bodies by their hash
			continue
		}
		written++
		var ops []Operation
		for _, o := range c.Meaning.Operations {
			ops = append(ops, o.operation(t))
		}
		if got := Request(ops...); !bytes.Equal(got, c.Body) {
			t.Errorf("%s: the request is\n% x\nwant\n% x", c.Name, got, c.Body)
		}
	}
	if written != 30 {
		t.Errorf("%d requests were written, want 30", written)
	}
}

// operation is what the SDK was asked to write.
func (o *CaseOperation) operation(t *testing.T) Operation {
	t.Helper()
	decode := func(digits *string) []byte {
		if digits == nil {
			return nil
		}
		b, err := hex.DecodeString(*digits)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	body := octets(o.Body)
	if o.BodyHex != nil {
		body = decode(o.BodyHex)
	}
	return Operation{
		Type: o.OperationType, ResourceType: o.ResourceType, PartitionKey: o.PartitionKey, ID: o.ID, Body: body,
		EffectivePartitionKey: decode(o.EffectivePartitionKeyHex), BinaryID: decode(o.BinaryIDHex),
		IndexingDirective: o.IndexingDirective, IfMatch: o.IfMatch, IfNoneMatch: o.IfNoneMatch,
		TimeToLive: o.TimeToLiveInSeconds, Minimal: o.MinimalReturnPreference != nil,
	}
}

// What is read here is what the SDK has read.
func TestAnswersAreReadAsTheSDKReadsThem(t *testing.T) {
	read := 0
	for _, c := range Cases(t, recorded, "response") {
		if c.Name == "answer-unknown-sparse-fields" { // which no server has to write
			continue
		}
		read++
		results, err := Results(c.Body)
		if err != nil || len(results) != len(c.Meaning.Results) {
			t.Errorf("%s: %d results, %v, want %d", c.Name, len(results), err, len(c.Meaning.Results))
			continue
		}
		for i, want := range c.Meaning.Results {
			got := results[i]
			if !SameBody(got.Body, want.Body, want.BodyLength, want.BodySha256) {
				t.Errorf("%s: body %d is %.100q", c.Name, i, got.Body)
			}
			got.Body = nil
			if same := (Result{want.StatusCode, want.SubStatusCode, want.ETag, nil, want.RetryAfterMilliseconds, want.RequestCharge}); !reflect.DeepEqual(got, same) {
				t.Errorf("%s: result %d is %+v, want %+v", c.Name, i, got, same)
			}
		}
	}
	if read != 25 {
		t.Errorf("%d answers were read, want 25", read)
	}
}
