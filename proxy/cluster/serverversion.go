package cluster

import (
	"context"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"

	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// versionInterval is the shortest pause between two reads of /version. The longest is a fifth longer.
	versionInterval = 10 * time.Second
	// minChangeInterval is the shortest time between two reported changes of the version.
	minChangeInterval = 2 * time.Minute
)

// followVersion reads /version every versionInterval until ctx ends.
func (c *Cluster) followVersion(ctx context.Context) {
	var tracker versionTracker
	for {
		const timeout = 5 * time.Second
		var answered version.Info
		if err := c.versionAPI.getJSON(ctx, "/version", timeout, &answered); err != nil {
			c.config.Log.DebugContext(ctx, "the API server's /version cannot be read", "error", err)
		} else {
			c.newHolderAtStart.Store(startsWithNewHolder(answered))
			if tracker.add(answered, time.Now()) {
				c.serversChanged("version " + answered.GitVersion + " answers")
			}
		}
		if !clock.Sleep(ctx, wait.Jitter(versionInterval, 0.2)) {
			return
		}
	}
}

// versionTracker finds changes in the versions that API servers behind one address answer.
type versionTracker struct {
	last       version.Info // the version of the last answer
	unreported bool         // the version has changed since reportedAt
	reportedAt time.Time    // when a change was last reported; zero if none was
}

// add adds the version of an answer, and returns true if a change must be reported. During a rolling upgrade two versions answer
// in turn, so changes are reported at most once every minChangeInterval:
//
//	answers               add returns
//	1.36                  false: the first answer
//	1.37                  true
//	1.36, 1.37, 1.36, …   false, for minChangeInterval
//	any of the two        true: the versions have changed since the last report
func (v *versionTracker) add(answered version.Info, now time.Time) bool {
	isFirst := v.last == version.Info{}
	if !isFirst && answered != v.last {
		v.unreported = true
	}
	v.last = answered
	if !v.unreported || now.Sub(v.reportedAt) < minChangeInterval {
		return false
	}
	v.unreported = false
	v.reportedAt = now
	return true
}

// startsWithNewHolder reports whether a kube-apiserver of this version gives its Lease a new holder at each start. Versions from
// 1.35 on do (k8s.io/component-helpers, apimachinery/lease).
func startsWithNewHolder(info version.Info) bool {
	parsed, err := utilversion.ParseGeneric(info.GitVersion)
	return err == nil && parsed.AtLeast(utilversion.MajorMinor(1, 35))
}
