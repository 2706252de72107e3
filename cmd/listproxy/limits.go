package main

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/limits"
)

// limitOptions has the bounds on what callers can use at a time.
type limitOptions struct {
	requests    int
	longRunning int
	answers     string
	answerBytes int64 // set by Validate, from answers
}

// overloadWait is the time for which a request waits for its turn, before it is refused.
const overloadWait = 5 * time.Second

func defaultLimitOptions() limitOptions {
	return limitOptions{requests: 1000, longRunning: 20000, answers: "1Gi"}
}

// AddFlags implements optionGroup.
func (o *limitOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.requests, "max-requests-inflight", o.requests,
		"how many requests are served at a time, shared fairly between callers; 0 any number")
	fs.IntVar(&o.longRunning, "max-long-running-requests", o.longRunning,
		"how many watches, logs, execs and the like are open at a time, at most half of them of one caller; 0 any number")
	fs.StringVar(&o.answers, "max-inflight-bytes", o.answers,
		"how many bytes of large answers from memory are being written, and of large bodies of requests kept to be sent "+
			"again, at a time (`quantity`), shared fairly between callers; answers and bodies of up to a thousandth of it "+
			"do not count; 0 any number")
}

// Validate implements optionGroup.
func (o *limitOptions) Validate() error {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--max-requests-inflight", o.requests}, {"--max-long-running-requests", o.longRunning},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s %d is negative: give a number, or 0 for no bound", n.flag, n.value)
		}
		if n.value > math.MaxInt32 {
			return fmt.Errorf("%s %d is more than any machine can serve: give a smaller number, or 0 for no bound", n.flag, n.value)
		}
	}
	return byteFlag{"--max-inflight-bytes", o.answers, &o.answerBytes}.parse()
}

func (o *limitOptions) limits() (*limits.Limits, error) {
	return limits.New(limits.Config{
		Requests: o.requests, LongRunning: o.longRunning, Bytes: o.answerBytes, Wait: overloadWait,
	})
}
