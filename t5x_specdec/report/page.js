'use strict';
// Shows both laws of a token, and moves between tokens by arrow keys. All text
// is set as text: nothing of a run is ever read as HTML.
(() => {
  const values = JSON.parse(document.getElementById('values').textContent);
  const detail = document.getElementById('detail');
  let shown = null;
  let leaving = 0;

  const chance = x => x === null ? 'n/a' : x.toPrecision(3);
  const quoted = piece => '\u201c' + piece.trim() + '\u201d';

  function lines(token) {
    const round = values.texts[token.dataset.text].rounds[token.dataset.round];
    const at = Number(token.dataset.draft);
    const count = round.drafted.length;
    const place = `Round ${Number(token.dataset.round) + 1}`;
    if (at < 0) {
      const all = round.accepted === count;
      return [
        `${quoted(round.next_piece)}: the target's own token`,
        `${place}, after ${round.accepted} of ${count} drafts stood: ` +
            (all ? 'a bonus' : 'a correction'),
        `id ${round.next_token}`,
      ];
    }
    const stands = at < round.accepted;
    const result = [
      `${quoted(round.pieces[at])}: draft ${stands ? 'accepted' : 'rejected'}`,
      `target p ${chance(round.p[at])}`,
      `draft q ${chance(round.q[at])}`,
      `${place}, draft ${at + 1} of ${count}, id ${round.drafted[at]}`,
    ];
    const rest = round.pieces.slice(at + 1);
    if (!stands && rest.length) {
      result.push('Thrown away with it: ' + rest.map(quoted).join(' '));
    }
    return result;
  }

  function light(token, on) {
    const card = token.closest('article');
    const number = token.dataset.round;
    for (const part of card.querySelectorAll(
        `.round[data-round="${number}"], rect[data-round="${number}"]`)) {
      part.classList.toggle('lit', on);
    }
  }

  function hide() {
    clearTimeout(leaving);
    detail.hidden = true;
    if (shown) {
      light(shown, false);
      shown.removeAttribute('aria-describedby');
    }
    shown = null;
  }

  function show(token) {
    hide();
    shown = token;
    detail.replaceChildren(...lines(token).map((line, i) => {
      const paragraph = document.createElement('p');
      paragraph.className = i ? '' : 'head';
      paragraph.textContent = line;
      return paragraph;
    }));
    token.setAttribute('aria-describedby', 'detail');
    light(token, true);
    detail.style.left = detail.style.top = '0';
    detail.hidden = false;
    const box = token.getBoundingClientRect();
    const size = detail.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(box.left, width - size.width - 8));
    const below = box.bottom + 8 + size.height <= window.innerHeight;
    const top = below || box.top < size.height + 8 ?
        box.bottom + 8 : box.top - size.height - 8;
    detail.style.left = `${left + window.scrollX}px`;
    detail.style.top = `${top + window.scrollY}px`;
  }

  const leaveSoon = () => {
    clearTimeout(leaving);
    leaving = setTimeout(() => {
      const focused = document.activeElement;
      if (focused && focused.matches('.token:focus-visible')) {
        show(focused);
      } else {
        hide();
      }
    }, 200);
  };
  detail.addEventListener('pointerenter', () => clearTimeout(leaving));
  detail.addEventListener('pointerleave', leaveSoon);

  for (const text of document.querySelectorAll('.text')) {
    const tokens = [...text.querySelectorAll('.token')];
    const tokenOf = event => event.target.closest('.token');
    text.addEventListener('pointerover', event => {
      const token = tokenOf(event);
      if (token) show(token); else leaveSoon();
    });
    text.addEventListener('pointerleave', leaveSoon);
    text.addEventListener('click', event => {
      const token = tokenOf(event);
      if (token) show(token);
    });
    text.addEventListener('focusin', event => {
      const token = tokenOf(event);
      // One stop for Tab in each text: the token that was last in focus.
      for (const other of tokens) other.tabIndex = other === token ? 0 : -1;
      show(token);
    });
    text.addEventListener('focusout', hide);
    text.addEventListener('keydown', event => {
      const at = tokens.indexOf(tokenOf(event));
      const ahead = getComputedStyle(text).direction === 'rtl' ? -1 : 1;
      const to = {
        ArrowLeft: at - ahead,
        ArrowRight: at + ahead,
        Home: 0,
        End: tokens.length - 1,
      }[event.key];
      if (to === undefined || !tokens[to]) return;
      event.preventDefault();
      tokens[to].focus();
    });
  }
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') hide();
  });
  const apart = document.getElementById('apart');
  const arrange = () => document.body.classList.toggle('apart', apart.checked);
  apart.addEventListener('change', arrange);
  arrange();
})();
