package main

import (
	"os"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"0:12.34": 12340 * time.Millisecond, "01:02:03": time.Hour + 2*time.Minute + 3*time.Second} {
		if got, err := cpuOfPS(text); err != nil || got.Round(time.Millisecond) != want {
			t.Errorf("ps says %s: %v, %v", text, got, err)
		}
	}
	const stat = "123 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0"
	if got, err := cpuOfStat(stat); err != nil || got != 1750*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := cpuOfStat("nothing"); err == nil {
		t.Error("no error for nothing")
	}
	if _, err := cpuTime(t.Context(), os.Getpid()); err != nil {
		t.Error(err)
	}
}
