package upstream

import (
	"testing"
	"time"
)

func TestAfterFailure(t *testing.T) {
	const short = endpointPatience - 1
	for name, tt := range map[string]struct {
		before endpointState
		failed failedChecks
		want   endpointState
		again  bool
	}{
		"the first check ever":               {endpointUnknown, failedChecks{1, false, false, 0}, endpointUnreachable, false},
		"late at the first check":            {endpointUnknown, failedChecks{1, true, false, 0}, endpointUnreachable, false},
		"late at the first check, alive":     {endpointUnknown, failedChecks{1, true, true, 0}, endpointSlow, false},
		"it was up, refused":                 {endpointUp, failedChecks{1, false, true, 0}, endpointUp, true},
		"it was up, late":                    {endpointUp, failedChecks{1, true, false, 0}, endpointUp, true},
		"it was not ready":                   {endpointNotReady, failedChecks{1, false, false, 0}, endpointNotReady, true},
		"twice refused":                      {endpointUp, failedChecks{2, false, false, short}, endpointUnreachable, false},
		"twice refused, though heard":        {endpointUp, failedChecks{2, false, true, short}, endpointUnreachable, false},
		"twice late, and silent":             {endpointUp, failedChecks{2, true, false, short}, endpointUnreachable, false},
		"twice late, and alive":              {endpointUp, failedChecks{2, true, true, short}, endpointSlow, false},
		"not ready, late and alive":          {endpointNotReady, failedChecks{2, true, true, short}, endpointSlow, false},
		"slow, and still alive":              {endpointSlow, failedChecks{5, true, true, short}, endpointSlow, false},
		"slow, and silent since":             {endpointSlow, failedChecks{5, true, false, short}, endpointUnreachable, false},
		"slow, and refuses now":              {endpointSlow, failedChecks{5, false, true, short}, endpointUnreachable, false},
		"slow for too long":                  {endpointSlow, failedChecks{5, true, true, endpointPatience}, endpointUnreachable, false},
		"unreachable, though something came": {endpointUnreachable, failedChecks{3, true, true, short}, endpointUnreachable, false},
	} {
		if got, again := afterFailure(tt.before, tt.failed); got != tt.want || again != tt.again {
			t.Errorf("%s: %s, again %v", name, got, again)
		}
	}
}

func TestToLeave(t *testing.T) {
	for name, tt := range map[string]struct {
		state     endpointState
		unready   time.Duration
		elsewhere bool
		want      bool
	}{
		"up":                             {endpointUp, 0, true, false},
		"not checked":                    {endpointUnknown, 0, true, false},
		"slow":                           {endpointSlow, 0, true, false},
		"slow, and not ready for long":   {endpointSlow, endpointLinger, true, false},
		"unreachable":                    {endpointUnreachable, 0, true, true},
		"unreachable, as all are":        {endpointUnreachable, 0, false, false},
		"not ready":                      {endpointNotReady, endpointLinger - 1, true, false},
		"not ready for long":             {endpointNotReady, endpointLinger, true, true},
		"not ready for long, as all are": {endpointNotReady, endpointLinger, false, false},
	} {
		if got := toLeave(tt.state, tt.unready, tt.elsewhere); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestToLeaveOut(t *testing.T) {
	for name, tt := range map[string]struct {
		state       endpointState
		connections int64
		elsewhere   bool
		want        bool
	}{
		"not ready":                      {endpointNotReady, 0, true, true},
		"not ready, and still used":      {endpointNotReady, 1, true, false},
		"not ready, as all are":          {endpointNotReady, 0, false, false},
		"up":                             {endpointUp, 0, true, false},
		"slow, which has connections":    {endpointSlow, 0, true, false},
		"unreachable, which has no word": {endpointUnreachable, 0, true, false},
	} {
		if got := toLeaveOut(tt.state, tt.connections, tt.elsewhere); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
