// Package testdata holds retries for the lint: those whose name begins with bad must
// be refused. It is never built.
package testdata

func badForever() (int, error) { // a lease held one of these for as long as its holder lived
	for tries := 1; ; {
		fd, err := unix.Openat2(0, "f", nil)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EXDEV:
			if tries++; tries <= 16 {
				continue
			}
		}
		return fd, err
	}
}

func badCondition() error {
	err := call()
	for errors.Is(err, unix.EBUSY) {
		err = call()
	}
	return err
}

func badProgressOnly(size int) {
	for n := 0; n < size; {
		k, err := read()
		if err == syscall.EINTR {
			continue
		}
		n += k
	}
}

func badDeadlineOnly() error {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if err := call(); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func badWaitWithoutContext() (err error) {
	for range 10 {
		if err = call(); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

func badContextWithoutCount(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := call(); err != unix.ESTALE {
			return err
		}
	}
	return ctx.Err()
}

func again(err error) bool { return errors.Is(err, unix.ENOTEMPTY) }

func badByAHelper() error {
	for {
		if err := call(); !again(err) {
			return err
		}
	}
}

func badCounterPutBack() error {
	for i := 0; i < 3; i++ {
		if err := call(); errors.Is(err, unix.EAGAIN) {
			i = 0
		}
	}
	return nil
}

func badTicker(t *time.Ticker) {
	for range t.C {
		if err := call(); err != unix.EAGAIN {
			return
		}
	}
}

func badGoto() error {
retry:
	if err := call(); err == unix.EINTR {
		goto retry
	}
	return nil
}

func badRecursion() error {
	err := call()
	if errors.Is(err, unix.EAGAIN) {
		return badRecursion()
	}
	return err
}

func badMutualComparison() error {
	for {
		if err := call(); unix.EINTR != err {
			return err
		}
	}
}

func goodCount() (err error) {
	for range 16 {
		if err = call(); err != unix.EAGAIN {
			break
		}
	}
	return err
}

func goodCounter() (err error) {
	for i := 0; i < 16 && err != nil; i++ {
		if err = call(); err != unix.EAGAIN {
			break
		}
	}
	return err
}

func goodCountAndContext(ctx context.Context) (err error) {
	for range 16 {
		if err = call(); err != unix.EBUSY {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func goodPackage(ctx context.Context) error {
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	return retry.Times{Count: 3}.Do(ctx, busy, call)
}

func goodInterrupted() {
	for n := 0; n < 10; {
		k, _ := retry.Interrupted(call)
		n += k
	}
}

func goodNoLoop() error {
	if err := call(); errors.Is(err, unix.EXDEV) {
		return copyInstead()
	}
	return nil
}

func goodItems(all []string) {
	for _, one := range all {
		if err := call(one); errors.Is(err, unix.EBUSY) {
			note(one)
		}
	}
}
