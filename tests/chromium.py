# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, driven through its own debugging pipe.

With the standard library alone: commands and events of the Chrome DevTools
Protocol are JSON objects that end in a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time
from typing import Any

_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
# It reads commands at descriptor 3 and answers at 4.
_LAUNCH = (
    'import os, sys; os.dup2(int(sys.argv[1]), 3); '
    'os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])'
)
_PATIENCE = 120.0


def find() -> str | None:
  """The browser on the path."""
  return next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
  """One page.

  Attributes:
    problems: what the console was told, and what went wrong.
    requests: addresses of all requests.
    dialogs: messages of alert() and the like.
  """

  def __init__(self, folder: pathlib.Path):
    """Starts a browser.

    Args:
      folder: an empty one, for its profile.
    """
    browser = find()
    assert browser is not None
    # Above the descriptors that the browser has fixed.
    pipes = [
        fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
        for end in (*os.pipe(), *os.pipe())
    ]
    theirs, self._to, self._from, answers = pipes
    self._process = subprocess.Popen(
        [
            *(sys.executable, '-c', _LAUNCH, str(theirs), str(answers)),
            *(browser, '--headless=new', '--remote-debugging-pipe'),
            *('--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'),
            *('--no-first-run', '--disable-background-networking'),
            *(f'--user-data-dir={folder}', 'about:blank'),
        ],
        pass_fds=(theirs, answers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(answers)
    self._buffer = b''
    self._count = 0
    self._loaded = False
    self._session: str | None = None
    self.problems: list[str] = []
    self.requests: list[str] = []
    self.dialogs: list[str] = []
    made = self.call('Target.createTarget', url='about:blank')
    joined = self.call(
        'Target.attachToTarget', targetId=made['targetId'], flatten=True
    )
    self._session = joined['sessionId']
    for domain in ('Page', 'Runtime', 'Log', 'Network'):
      self.call(f'{domain}.enable')

  def call(self, method: str, **params: Any) -> dict[str, Any]:
    """Sends a command and waits for its answer."""
    self._count += 1
    message: dict[str, Any] = {
        'id': self._count, 'method': method, 'params': params
    }
    if self._session:
      message['sessionId'] = self._session
    os.write(self._to, json.dumps(message).encode() + b'\0')
    while True:
      answer = self._receive()
      if answer.get('id') == self._count:
        assert 'error' not in answer, answer
        return answer['result']

  def _receive(self) -> dict[str, Any]:
    while b'\0' not in self._buffer:
      ready, _, _ = select.select([self._from], [], [], _PATIENCE)
      assert ready, 'the browser does not answer'
      piece = os.read(self._from, 1 << 16)
      assert piece, 'the browser has gone'
      self._buffer += piece
    line, self._buffer = self._buffer.split(b'\0', 1)
    message = json.loads(line)
    self._note(message.get('method'), message.get('params', {}))
    return message

  def _note(self, event: str | None, params: dict[str, Any]) -> None:
    if event == 'Page.loadEventFired':
      self._loaded = True
    elif event == 'Network.requestWillBeSent':
      self.requests.append(params['request']['url'])
    elif event == 'Page.javascriptDialogOpening':
      self.dialogs.append(params['message'])
    elif event in (
        'Runtime.consoleAPICalled',
        'Runtime.exceptionThrown',
        'Log.entryAdded',
    ):
      self.problems.append(json.dumps(params))

  def open(self, url: str) -> None:
    """Goes to an address and waits until all is there."""
    self._loaded = False
    self.call('Page.navigate', url=url)
    deadline = time.monotonic() + _PATIENCE
    while not self._loaded:
      assert time.monotonic() < deadline, 'the page does not load'
      self._receive()

  def resize(self, width: int, height: int, dark: bool = False) -> None:
    """Makes the window of a size in CSS pixels, in one of the two schemes."""
    self.call(
        'Emulation.setDeviceMetricsOverride',
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    scheme = {
        'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'
    }
    self.call('Emulation.setEmulatedMedia', features=[scheme])

  def evaluate(self, expression: str) -> Any:
    """The value of an expression of JavaScript."""
    answer = self.call(
        'Runtime.evaluate', expression=expression, returnByValue=True
    )
    assert 'exceptionDetails' not in answer, answer
    return answer['result'].get('value')

  def press(self, key: str) -> None:
    """Presses a key, such as 'Tab', and lets it go."""
    codes = {
        'Tab': 9, 'Escape': 27, 'End': 35, 'ArrowLeft': 37, 'ArrowRight': 39
    }
    for kind in ('rawKeyDown', 'keyUp'):
      self.call(
          'Input.dispatchKeyEvent',
          type=kind,
          key=key,
          code=key,
          windowsVirtualKeyCode=codes[key],
      )

  def point(self, x: float, y: float) -> None:
    """Moves the mouse there."""
    self.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)

  def picture(self, path: pathlib.Path, whole: bool = True) -> None:
    """Saves what is shown, or the whole page, as PNG."""
    answer = self.call(
        'Page.captureScreenshot', format='png', captureBeyondViewport=whole
    )
    path.write_bytes(base64.b64decode(answer['data']))

  def close(self) -> None:
    """Ends the browser."""
    self._process.terminate()
    self._process.wait(_PATIENCE)
    os.close(self._to)
    os.close(self._from)
