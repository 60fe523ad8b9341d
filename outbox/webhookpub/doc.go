// Package webhookpub publishes the events of an outbox to a webhook, as CloudEvents over HTTP. It imports only the
// standard library.
//
//	to, err := webhookpub.New("https://example.com/events", webhookpub.Options{Secret: secret})
//
// # Requests
//
// Each event is a POST. In the binary mode, the default, the attributes of the CloudEvent are headers such as ce-type,
// escaped according to the HTTP binding, and the body is the data, byte for byte. In the structured mode the body is a
// JSON object with the attributes and the data, application/cloudevents+json. In Go, [Receive] reads both.
//
// Some libraries leave the escapes in the attributes: those of the CNCF for Go and Java, as of 2026. If your receiver
// uses one of these, it reads keys and ids outside ASCII correctly only in the structured mode.
//
// A key has only one request at a time, so its events arrive in their order. If an answer was lost, the event is sent
// again. HTTP cannot recognize a repeated request. If a receiver must handle each event once, it must store the handled
// ids (ce-id), in the transaction of their effects.
//
// # Answers
//
//	2xx                           accepted
//	413                           too large, never sent again: Poison and outbox.ErrTooLarge
//	401 403 404 405 407 410 421   not the event's fault but the URL's, the rights' or the receiver's: sent again
//	408 425 429 502 503 504       sent again
//	another 5xx                   sent again, and counts as an attempt: outbox.ErrRefused
//	other 4xx                     the receiver cannot take this event: Poison
//	1xx 3xx                       sent again; redirects are not followed, so that data and signature go nowhere else
//	no answer                     sent again
//
// If an answer has Retry-After, in seconds or as a date, the relay waits at least this time, but at most
// [MaxRetryAfter].
//
// # Signatures
//
// If you set [Options.Secret], each request is signed twice.
//
// The signature of Standard Webhooks is for receivers in any language: most languages have a library. Give the library
// the secret in the form of [SecretText], whsec_ and base64.
//
//	webhook-id: the id of the event, escaped as in ce-id
//	webhook-timestamp: 1767225600
//	webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=
//
// The signature is the base64 of the HMAC-SHA256, under the bytes of the secret, of the id, the timestamp and the body,
// with a period between them. The signature covers no other header: use the structured mode, in which the body contains
// the attributes. [VerifyStandard] checks this signature.
//
// The signature of this package also covers the attributes of the binary mode, and [Receive] checks it:
//
//	Changefeed-Signature: t=1767225600,v1=5257a8…
//
// t is the time of sending, in seconds since 1970. v1 is in hexadecimal the HMAC-SHA256, under the secret, of
//
//	1767225600\n
//	ce-id:…\n
//	ce-source:…\n
//	content-type:application/json\n
//	\n
//	body
//
// These are: t; the content type and each header with the prefix ce-, sorted by name, each as the name in lower case, a
// colon, and the value as sent; an empty line; and the bytes of the body. Every line before the body ends with a line
// feed. A receiver refuses a request if t differs by more than some minutes from its clock, because the request may
// have been recorded. [Verify] checks all this in constant time.
package webhookpub
