// Package webhookpub publishes the events of an outbox to a webhook, as CloudEvents over HTTP. It imports the
// standard library only.
//
//	to, err := webhookpub.New("https://example.com/events", webhookpub.Options{Secret: secret})
//
// # Requests
//
// Each event is a POST. In the binary mode, which is the default, the attributes of the CloudEvent are headers such
// as ce-type, escaped as the HTTP binding says, and the body is the data, byte for byte. In the structured mode the
// body is a JSON object with the attributes and the data, application/cloudevents+json. In Go, [Receive] reads both.
//
// Some libraries leave the escapes in the attributes: those of the CNCF for Go and Java, as of 2026. Their receivers get
// keys and ids that are not ASCII right in the structured mode only.
//
// A key has one request at a time, so its events arrive in their order. An event whose answer was lost is sent
// again: HTTP has nothing that knows it, so a receiver that must handle each once keeps the ids (ce-id) that it has
// handled, in the transaction of their effects.
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
// Where an answer has Retry-After, in seconds or as a date, the relay waits at least so long, within
// [MaxRetryAfter].
//
// # Signatures
//
// With [Options.Secret] each request is signed twice.
//
// The signature of Standard Webhooks is for receivers in any language: libraries for it exist in most of them. Give the library
// the secret as [SecretText] has it, whsec_ and base64.
//
//	webhook-id: the id of the event, escaped as in ce-id
//	webhook-timestamp: 1767225600
//	webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=
//
// The signature is the base64 of the HMAC-SHA256, under the bytes of the secret, of the id, the timestamp and the body,
// with a period between them. It covers no other header: use the structured mode, where the body has the attributes.
// [VerifyStandard] checks it.
//
// The signature of this package covers the attributes of the binary mode too, and is that which [Receive] checks:
//
//	Changefeed-Signature: t=1767225600,v1=5257a8…
//
// t is when it was sent, in seconds since 1970. v1 is in hexadecimal the HMAC-SHA256, under the secret, of
//
//	1767225600\n
//	ce-id:…\n
//	ce-source:…\n
//	content-type:application/json\n
//	\n
//	body
//
// which is t, then the content type and each header whose name begins with ce-, sorted by name: the name in lower
// case, a colon, and the value as it was sent, every line ended by a line feed; an empty line; and the bytes of the
// body. A receiver refuses requests whose t is more than some minutes from its clock, for they may be recorded ones.
// [Verify] does that in constant time.
package webhookpub
