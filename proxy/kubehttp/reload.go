package kubehttp

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ReloadInterval is the pause of [ReloadFiles] between two calls of reload. The files are small, so each call can read them.
// That notices every way of replacing them: the kubelet's symlinks, cert-manager, an editor.
const ReloadInterval = 5 * time.Second

// ReloadFiles calls reload at once and then every ReloadInterval, until ctx ends. reload reads files, and reports whether
// their content has changed. If it fails, the content that it has read before must stay in use.
//
// ReloadFiles logs each change, and each error unless the call before failed with the same error. subject is what these
// messages are about, like "a new CA".
func ReloadFiles(
	ctx context.Context, log *slog.Logger, subject string, reload func(context.Context) (changed bool, err error),
) {
	lastError := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		changed, err := reload(ctx)
		if changed {
			log.Info(subject + " is in use")
		}
		if err == nil {
			lastError = ""
			return
		}
		if err.Error() != lastError {
			log.Warn(subject+" cannot be used: the one before stays in use", "error", err)
		}
		lastError = err.Error()
	}, ReloadInterval)
}
