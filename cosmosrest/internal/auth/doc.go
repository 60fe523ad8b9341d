// Package auth finds out who sends a request, by the signature of a master key or by a
// token of Microsoft Entra ID, and what a role lets them do. It knows no store: where the
// resource of a request is named by resource ids, the caller passes its names.
package auth
