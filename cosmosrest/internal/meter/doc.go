// Package meter limits the resources that the requests of a server use together: the request units of each container,
// the processors that queries compute on, the memory that queries hold, and the bytes that slow clients leave unread.
package meter
