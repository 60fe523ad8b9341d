//go:build race

package changefeed_test

// raceDetector tells that the tests are slow.
const raceDetector = true
