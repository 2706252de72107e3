package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestListAfterBreaks: a watch goes on from the revision that is known only where no other past can
// have come in between.
func TestListAfterBreaks(t *testing.T) {
	type answer struct {
		after time.Duration // since it was asked for
		err   error
		lives time.Duration // before it is cut; zero: until its timeout, counted from the answer
		gone  bool          // it is told that it is too old
	}
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	noInitial := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	for _, tt := range []struct {
		name    string
		answers []answer
		want    []string
	}{
		{"at its timeout", []answer{{}, {}, {}}, []string{"watch list", "watch from 7", "watch from 7"}},
		{"at its timeout, answered slowly", []answer{{}, {after: 5 * time.Second}}, []string{"watch list", "watch from 7"}},
		{"cut", []answer{{lives: time.Minute}, {}}, []string{"watch list", "watch list from 7"}},
		{"cut at once, again and again", []answer{{lives: time.Second}, {lives: time.Second}, {}}, []string{"watch list", "watch list from 7", "watch list from 7"}},
		{"cut, and refused", []answer{{lives: time.Minute}, {err: refused}, {}}, []string{"watch list", "watch list from 7", "watch list from 7"}},
		{"refused after its timeout", []answer{{}, {err: refused}, {}}, []string{"watch list", "watch from 7", "watch list from 7"}},
		{"answered late after its timeout", []answer{{}, {after: 20 * time.Second}, {}}, []string{"watch list", "watch from 7", "watch list from 7"}},
		// Its watch ends in order: that counts from the answer.
		{"a list that is answered late", []answer{{after: 20 * time.Second}, {}}, []string{"watch list", "watch from 7"}},
		{"too old", []answer{{lives: time.Minute, gone: true}, {}}, []string{"watch list", "watch list from 7"}},
		{
			"lists apart from watches",
			[]answer{{err: noInitial}, {}, {}, {}, {lives: time.Minute}, {err: noInitial}, {}, {}},
			[]string{"watch list", "list from 0", "watch from 7", "watch from 7", "watch from 7", "watch list from 7", "list from 7", "watch from 7"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var asked []string
				next := func(what string, options metav1.ListOptions) (answer, error) {
					if len(asked) == len(tt.answers) {
						cancel()
						return answer{}, context.Canceled
					}
					if options.ResourceVersion != "" {
						what += " from " + options.ResourceVersion
					}
					asked = append(asked, what)
					a := tt.answers[len(asked)-1]
					time.Sleep(a.after)
					return a, a.err
				}
				object := func(bookmark string) *metav1.PartialObjectMetadata {
					o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: "7"}}
					if bookmark != "" {
						o.Annotations = map[string]string{bookmark: "true"}
					}
					return o
				}
				source := &cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
						if _, err := next("list", options); err != nil {
							return nil, err
						}
						return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []metav1.PartialObjectMetadata{*object("")}}, nil
					},
					WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
						what := "watch"
						if options.SendInitialEvents != nil {
							what = "watch list"
						}
						a, err := next(what, options)
						if err != nil {
							return nil, err
						}
						if a.lives == 0 {
							a.lives = time.Duration(*options.TimeoutSeconds) * time.Second
						}
						w := watch.NewRaceFreeFake()
						if options.SendInitialEvents != nil {
							w.Add(object(""))
							w.Action(watch.Bookmark, object(metav1.InitialEventsAnnotationKey))
						}
						time.AfterFunc(a.lives, func() {
							if a.gone {
								w.Error(new(apierrors.NewResourceExpired("too old").ErrStatus))
							}
							w.Stop()
						})
						return w, nil
					},
				}
				var running sync.WaitGroup
				running.Go(func() {
					follower{
						name: "things", listWatch: source, expectedType: &metav1.PartialObjectMetadata{},
						store: cache.NewStore(cache.MetaNamespaceKeyFunc), ended: func(error) {}, log: slog.New(slog.DiscardHandler),
					}.follow(ctx)
				})
				running.Wait()
				if d := cmp.Diff(tt.want, asked); d != "" {
					t.Errorf("asked (-want +got):\n%s", d)
				}
			})
		})
	}
}
