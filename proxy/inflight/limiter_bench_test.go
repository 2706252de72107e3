package inflight

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// BenchmarkLimiter is paid by every request.
func BenchmarkLimiter(b *testing.B) {
	newByKey := func(b *testing.B, capacity int64) *Limiter[ShareKey] {
		b.Helper()
		l, err := NewLimiter[ShareKey](LimiterConfig{
			Capacity: capacity, MaxWaiting: 1000, MaxWaitingPerCaller: 100, MaxWait: time.Hour,
		})
		expect.NoError(b, err)
		return l
	}
	take := func(b *testing.B, l *Limiter[ShareKey], key ShareKey) {
		grant, err := l.Acquire(b.Context(), key, 1)
		if err != nil {
			b.Error(err)
		}
		grant.Release()
	}
	b.Run("alone", func(b *testing.B) {
		l := newByKey(b, 400)
		b.ReportAllocs()
		for b.Loop() {
			take(b, l, ShareKey{1})
		}
	})
	b.Run("1000 callers hold", func(b *testing.B) {
		l := newByKey(b, 4000)
		var key ShareKey
		for i := range 1000 {
			binary.LittleEndian.PutUint32(key[:], uint32(i)+2)
			if _, err := l.Acquire(b.Context(), key, 1); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			take(b, l, ShareKey{1})
		}
	})
	b.Run("parallel", func(b *testing.B) {
		l := newByKey(b, 400)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				take(b, l, ShareKey{1})
			}
		})
	})
	// Each request waits for another's end.
	b.Run("contended", func(b *testing.B) {
		l := newByKey(b, 1)
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				take(b, l, ShareKey{1})
			}
		})
	})
}

// BenchmarkLimiterLeave is the time for one of many waiting requests of one caller to leave, while
// all others wait for the limiter's lock. It must not depend on how many there are.
func BenchmarkLimiterLeave(b *testing.B) {
	for _, waiting := range []int{1000, 20000} {
		b.Run(fmt.Sprintf("%d wait", waiting), func(b *testing.B) {
			l, err := NewLimiter[string](LimiterConfig{
				Capacity: 1, MaxWaiting: waiting, MaxWaitingPerCaller: waiting, MaxWait: time.Hour,
			})
			expect.NoError(b, err)
			_, err = l.Acquire(b.Context(), "holds", 1)
			expect.NoError(b, err)
			claims := make([]*claim[string], waiting)
			for i := range claims {
				claims[i] = l.enqueueLocked(l.shareLocked("waits"), 1)
			}
			for i := 0; b.Loop(); i++ {
				at := (i + waiting/2) % waiting // not the first in the queue
				if !l.abandon(claims[at], OverloadTimeOut) {
					b.Fatal("it did not wait")
				}
				claims[at] = l.enqueueLocked(l.shareLocked("waits"), 1)
			}
		})
	}
}
