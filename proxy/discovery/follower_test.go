package discovery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestTellStreams: there is a stream from its beginning to its end, or to the next attempt, if that
// comes first; an end that is heard later says nothing about the stream after it.
func TestTellStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var next watch.Interface
		var refusal error
		source := &cache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return next, refusal
		}}
		up := false
		tellStreams(source, func(follows bool) { up = follows }, func() { up = false })
		var options metav1.ListOptions
		open := func() watch.Interface {
			next = watch.NewFake()
			w, err := source.WatchFuncWithContext(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		expect := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if up != want {
				t.Errorf("%s: there is a stream: %t", when, up)
			}
		}
		first := open()
		expect("opened", true)
		first.Stop()
		expect("ended", false)
		second := open()
		expect("opened again", true)
		third := open()
		second.Stop()
		expect("the one before ended late", true)
		refusal = errors.New("no route")
		if _, err := source.WatchFuncWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatal("it was opened")
		}
		expect("not opened again", false)
		third.Stop()
		expect("and ended", false)
		refusal, options = nil, metav1.ListOptions{SendInitialEvents: new(true)}
		fourth := open()
		expect("a streaming list that has told nothing", false)
		fourth.Stop()
	})
}
