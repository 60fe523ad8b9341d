// Package webhook makes a URL the handler of a change feed processor: each batch is a POST, and the answer says whether
// the batch is done. It imports only the standard library.
//
//	handler, err := webhook.New("https://example.com/orders", webhook.Options{Secret: secret})
//	...
//	processor, err := changefeed.New(orders, leases, handler, changefeed.Options{Instance: "mailer-1"})
//
// # Requests
//
// The body has the changes of the batch, in the form of [Options.Form]: a JSON array, lines of JSON, or a batch of
// CloudEvents. The headers describe the batch:
//
//	Changefeed-Lease      the token of the lease
//	Changefeed-Range      its range of effective partition keys, min-max
//	Changefeed-Instance   the name of the processor's instance
//	Changefeed-Epoch      the number of the owner of the lease: each later owner has a higher number
//	Changefeed-Attempt    1 the first time, then one more each time that the batch has failed
//	Webhook-Id            the same if the same changes come again
//
// If you set Options.Secret, the request has the signature of Standard Webhooks, for which most languages have a
// library. Package webhookpub of the outbox checks it in Go: webhookpub.VerifyStandard.
//
// The request ends when the lease is lost and when Options.HandlerTimeout is over: the receiver sees that its
// connection is closed, and another instance may send the same changes soon. Make the receiver idempotent.
//
// # Answers
//
//	2xx                                   done; the body may say which changes have failed, see below
//	400 409 413 415 422, other 4xx        poison: a retry cannot help
//	401 403 404 405 407 410 421           the URL or the rights are wrong: no change is at fault
//	408 425 429 502 503 504               the receiver is not there, or busy: no change is at fault
//	another 5xx                           the batch has failed
//	1xx 3xx                               the batch has failed: redirects are not followed
//	no answer                             the receiver is not there: no change is at fault
//	no answer within Options.Timeout      the batch has failed
//
// If no change is at fault, nothing counts as an attempt of FailurePolicy.MaxAttempts, so nothing is parked; only
// FailurePolicy.MaxAge limits the time. Retry-After, in seconds or as a date, is the shortest pause before the next
// attempt, at most 10 minutes.
//
// A body of the type application/json may have the members of the message failed of package contract, if not all
// changes are done:
//
//	{"items": [{"index": 3, "error": "no such street", "poison": true}]}   exactly these have failed
//	{"done": 3, "error": "the database is full"}                           the first three are done
//
// A body of another type counts for nothing. One that is no JSON, or has a wrong member, is a failure.
package webhook
