package main

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/listproxy/listproxy/proxy/limits"
)

// limitOptions has the bounds on what all callers together can use at a time.
type limitOptions struct {
	requests    uint32
	longRunning uint32
	bytes       resource.QuantityValue
}

// AddFlags implements optionGroup.
func (o *limitOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Uint32Var(&o.requests, "max-requests-inflight", 1000,
		"`number` of requests that are served at a time, shared fairly between callers; 0: any number")
	fs.Uint32Var(&o.longRunning, "max-long-running-requests", 20_000,
		"`number` of watches, logs, execs and the like that are open at a time, at most half of them of one caller; "+
			"0: any number")
	bytesVar(fs, &o.bytes, "max-inflight-bytes", "1Gi",
		"bound (`quantity`) on the bytes of large answers that are being written from memory and of large bodies of "+
			"requests that are kept to be sent again, shared fairly between callers; answers and bodies of up to a "+
			"thousandth of it do not count; 0: no bound")
}

// Validate implements optionGroup.
func (o *limitOptions) Validate() error {
	return checkBytes("--max-inflight-bytes", o.bytes)
}

// turnTimeout is how long a request or a large answer waits for its turn.
const turnTimeout = 5 * time.Second

func (o *limitOptions) newLimits() *limits.Limits {
	return limits.New(limits.Config{
		Short:       int(o.requests),
		LongRunning: int(o.longRunning),
		Bytes:       o.bytes.Value(),
		MaxWait:     turnTimeout,
	})
}
