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
	// minReportInterval is the shortest time between two reports of a changed version.
	minReportInterval = 2 * time.Minute
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
			if tracker.record(answered, time.Now()) {
				c.serversChanged("version " + answered.GitVersion + " answers")
			}
		}
		if !clock.Sleep(ctx, wait.Jitter(versionInterval, 0.2)) {
			return
		}
	}
}

// versionTracker finds changes of the version that the API servers behind one address answer.
type versionTracker struct {
	last       version.Info // the version of the last answer
	hasChanged bool         // the version has changed since reportedAt
	reportedAt time.Time    // when a change was last reported; zero if none was
}

// record records the version of an answer, and returns whether a change must be reported now. During a rolling upgrade two
// versions answer in turn, so changes are reported at most once every minReportInterval:
//
//	answers               record returns
//	1.36                  false: the first answer
//	1.37                  true
//	1.36, 1.37, 1.36, …   false, for minReportInterval
//	1.36 or 1.37          true: the version has changed since the last report
func (v *versionTracker) record(answered version.Info, now time.Time) (mustReport bool) {
	isFirst := v.last == version.Info{}
	if !isFirst && answered != v.last {
		v.hasChanged = true
	}
	v.last = answered
	if !v.hasChanged || now.Sub(v.reportedAt) < minReportInterval {
		return false
	}
	v.hasChanged = false
	v.reportedAt = now
	return true
}

// startsWithNewHolder reports whether a kube-apiserver of this version gives its Lease a new holder at each start, as versions
// from 1.35 on do (k8s.io/component-helpers, apimachinery/lease).
func startsWithNewHolder(info version.Info) bool {
	parsed, err := utilversion.ParseGeneric(info.GitVersion)
	return err == nil && parsed.AtLeast(utilversion.MajorMinor(1, 35))
}
